//go:build integration

package integration_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"gnuthought.com/efs-stunnel/test/integration/testenv"
)

// warnings collects the warnings of the apiserver.
type warnings struct {
	mu    sync.Mutex
	texts []string // guarded by mu
}

// HandleWarningHeader is called by clients.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

// TestManifestsOfEveryPlatformAreAccepted applies them with a dry run, but for objects of kinds that other products
// define. Their namespaces are replaced by one that exists. Examples are applied one by one, too: most of them are no
// part of their kustomization.
func TestManifestsOfEveryPlatformAreAccepted(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	said := &warnings{}
	config := rest.CopyConfig(env.Config)
	config.WarningHandler = said
	client, mapper := newMapper(env, config)
	sources := map[string][]*unstructured.Unstructured{}
	for _, folder := range append(agentKustomizations(), "../../examples", "../../hack/demo/all", "../../hack/demo/first", "../../hack/demo/kept") {
		sources[folder] = render(t, folder)
	}
	for _, file := range examples(t) {
		sources[file] = decodeAll(t, file)
	}
	for _, folder := range slices.Sorted(maps.Keys(sources)) {
		for _, object := range sources[folder] {
			if !isKubernetes(object.GetAPIVersion()) {
				continue
			}
			api := apiOf(env, client, mapper, object)
			if _, err := api.Apply(t.Context(), object.GetName(), object, metav1.ApplyOptions{FieldManager: "test", Force: true, DryRun: []string{metav1.DryRunAll}}); err != nil {
				t.Errorf("%s: %s %s: %v", filepath.Base(folder), object.GetKind(), object.GetName(), err)
			}
		}
		for _, text := range said.texts {
			t.Errorf("%s: the apiserver warns: %s", filepath.Base(folder), text)
		}
		said.texts = nil
	}
}

// examples returns the files of the folder but its kustomization.
func examples(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../examples/*.yaml")
	files = slices.DeleteFunc(files, func(file string) bool { return filepath.Base(file) == "kustomization.yaml" })
	if err != nil || len(files) < 5 {
		t.Fatalf("examples are %q, %v", files, err)
	}
	return files
}

func decodeAll(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, file, string(text))
}

func newMapper(env *testenv.Env, config *rest.Config) (dynamic.Interface, meta.RESTMapper) {
	env.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		env.Fatal(err)
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		env.Fatal(err)
	}
	groups, err := restmapper.GetAPIGroupResources(kinds)
	if err != nil {
		env.Fatal(err)
	}
	return client, restmapper.NewDiscoveryRESTMapper(groups)
}

// apiOf also moves a namespaced object into the environment's namespace.
func apiOf(env *testenv.Env, client dynamic.Interface, mapper meta.RESTMapper, object *unstructured.Unstructured) dynamic.ResourceInterface {
	env.Helper()
	kind := object.GroupVersionKind()
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		env.Fatal(err)
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return client.Resource(mapping.Resource)
	}
	object.SetNamespace(env.Namespace)
	return client.Resource(mapping.Resource).Namespace(env.Namespace)
}

// isKubernetes: groups of other products have a domain that is not below k8s.io.
func isKubernetes(apiVersion string) bool {
	group, _, _ := strings.Cut(apiVersion, "/")
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}
