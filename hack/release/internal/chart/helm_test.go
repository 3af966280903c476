//go:build integration

package chart

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/action"
	helmchart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/registry"
	helmrelease "helm.sh/helm/v4/pkg/release/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	resources "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/test/integration/cluster"
)

// helm runs the commands of helm's own library for a cluster and a namespace.
type helm struct {
	*testing.T
	config    *rest.Config
	namespace string
}

// ToRESTConfig implements genericclioptions.RESTClientGetter.
func (h helm) ToRESTConfig() (*rest.Config, error) { return rest.CopyConfig(h.config), nil }

// ToDiscoveryClient implements genericclioptions.RESTClientGetter.
func (h helm) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	client, err := discovery.NewDiscoveryClientForConfig(h.config)
	return memory.NewMemCacheClient(client), err
}

// ToRESTMapper implements genericclioptions.RESTClientGetter.
func (h helm) ToRESTMapper() (meta.RESTMapper, error) {
	client, err := h.ToDiscoveryClient()
	return restmapper.NewDeferredDiscoveryRESTMapper(client), err
}

// ToRawKubeConfigLoader implements genericclioptions.RESTClientGetter.
func (h helm) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	overrides := &clientcmd.ConfigOverrides{Context: clientcmdapi.Context{Namespace: h.namespace}}
	return clientcmd.NewDefaultClientConfig(*clientcmdapi.NewConfig(), overrides)
}

// configuration returns the state of one command of helm.
func (h helm) configuration() *action.Configuration {
	h.Helper()
	c := action.NewConfiguration()
	if err := c.Init(h, h.namespace, ""); err != nil {
		h.Fatal(err)
	}
	return c
}

func (h helm) install(chart *helmchart.Chart, makeNamespace bool, values string) (*helmrelease.Release, error) {
	h.Helper()
	install := action.NewInstall(h.configuration())
	install.ReleaseName, install.Namespace, install.CreateNamespace = "efs-stunnel", h.namespace, makeNamespace
	install.WaitStrategy, install.Timeout = kube.HookOnlyStrategy, time.Minute
	made, err := install.Run(chart, valuesOf(h.T, values))
	release, _ := made.(*helmrelease.Release)
	return release, err
}

func (h helm) upgrade(chart *helmchart.Chart, values string) *helmrelease.Release {
	h.Helper()
	upgrade := action.NewUpgrade(h.configuration())
	upgrade.Namespace, upgrade.WaitStrategy, upgrade.Timeout, upgrade.ServerSideApply = h.namespace, kube.HookOnlyStrategy, time.Minute, "auto"
	made, err := upgrade.Run("efs-stunnel", chart, valuesOf(h.T, values))
	if err != nil {
		h.Fatal(err)
	}
	release, ok := made.(*helmrelease.Release)
	if !ok {
		h.Fatalf("got %T", made)
	}
	return release
}

// uninstall waits until the definitions are gone: the apiserver deletes them after helm has returned, and until then they
// belong to the release that was. It cannot delete one whose storage is being made, and tries again later and later.
func (h helm) uninstall() {
	h.Helper()
	h.eachDefinition("whose objects cannot be listed", func(ctx context.Context, client dynamic.Interface, definition unstructured.Unstructured) bool {
		group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
		plural, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "plural")
		_, err := client.Resource(resources.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: plural}).List(ctx, metav1.ListOptions{Limit: 1})
		return err == nil
	})
	uninstall := action.NewUninstall(h.configuration())
	uninstall.WaitStrategy, uninstall.Timeout = kube.HookOnlyStrategy, time.Minute
	if _, err := uninstall.Run("efs-stunnel"); err != nil {
		h.Fatal(err)
	}
	h.eachDefinition("that helm uninstall deletes", func(_ context.Context, _ dynamic.Interface, definition unstructured.Unstructured) bool {
		return definition.GetAnnotations()["helm.sh/resource-policy"] == "keep"
	})
}

// eachDefinition waits until something holds of all definitions.
func (h helm) eachDefinition(otherwise string, holds func(context.Context, dynamic.Interface, unstructured.Unstructured) bool) {
	h.Helper()
	client, err := dynamic.NewForConfig(h.config)
	if err != nil {
		h.Fatal(err)
	}
	var others []unstructured.Unstructured
	err = wait.PollUntilContextTimeout(h.Context(), 100*time.Millisecond, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
		all, err := client.Resource(definitions).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		others = slices.DeleteFunc(all.Items, func(definition unstructured.Unstructured) bool { return holds(ctx, client, definition) })
		return len(others) == 0, nil
	})
	if err != nil {
		h.Fatalf("definitions %s: %v: %+v", otherwise, err, others)
	}
}

var definitions = resources.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

func valuesOf(t *testing.T, text string) map[string]any {
	t.Helper()
	values := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// versions returns the resource version of each object of a release.
func (h helm) versions(release *helmrelease.Release) map[string]string {
	h.Helper()
	client, err := dynamic.NewForConfig(h.config)
	if err != nil {
		h.Fatal(err)
	}
	mapper, err := h.ToRESTMapper()
	if err != nil {
		h.Fatal(err)
	}
	all := map[string]string{}
	for part := range strings.SplitSeq(release.Manifest, "\n---\n") {
		var object unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(strings.TrimPrefix(part, "---\n")), &object.Object); err != nil {
			h.Fatal(err)
		}
		if object.Object == nil {
			continue
		}
		kind := object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			h.Fatal(err)
		}
		found, err := client.Resource(mapping.Resource).Namespace(object.GetNamespace()).Get(h.Context(), object.GetName(), metav1.GetOptions{})
		if err != nil {
			h.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
		}
		all[key(object.Object)] = found.GetResourceVersion()
	}
	return all
}

// TestHelmLintsTheChart as AWS does with those of add-ons.
func TestHelmLintsTheChart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "efs-stunnel-1.2.3.tgz")
	if err := os.WriteFile(file, archived(t), 0o644); err != nil {
		t.Fatal(err)
	}
	lint := action.NewLint()
	lint.Namespace, lint.Strict = "efs-stunnel", true
	result := lint.Run([]string{file}, map[string]any{})
	for _, message := range result.Messages {
		t.Log(message)
	}
	if len(result.Errors) > 0 || action.HasWarningsOrErrors(result) {
		t.Errorf("got %v", result.Errors)
	}
}

// TestHelmPullsThePushedChart from a registry on the loopback.
func TestHelmPullsThePushedChart(t *testing.T) {
	_, address := push(t)
	client, err := registry.NewClient(registry.ClientOptPlainHTTP())
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := client.Pull(strings.TrimPrefix(address, "oci://"))
	if err != nil {
		t.Fatal(err)
	}
	if pulled.Chart.Meta.Name != "efs-stunnel" || pulled.Chart.Meta.Version != "1.2.3" {
		t.Errorf("got %+v", pulled.Chart.Meta)
	}
}

// TestHelmInstallsTheChart by its own natural commands, one after the other.
func TestHelmInstallsTheChart(t *testing.T) {
	c, chart := cluster.ForTest(t), loaded(t)
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	h := helm{t, c.Config(), "storage"}
	const shared = "components: {sharedVolumes: true}\n"
	installed, err := h.install(chart, true, shared)
	if err != nil {
		t.Fatalf("helm install --create-namespace: %v", err)
	}
	first := h.versions(installed)

	// A claim of the product's, which the manager would make.
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "efs-stunnel-fs-1"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
	}}
	if _, err := client.CoreV1().PersistentVolumeClaims("storage").Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(first, h.versions(h.upgrade(chart, shared))); diff != "" {
		t.Errorf("an upgrade without a change changes (-before +after):\n%s", diff)
	}
	changed := h.versions(h.upgrade(chart, shared+"fileSystemTags: team=x\nmanager: {podLabels: {team: x}}\n"))
	for name, version := range first {
		if (changed[name] != version) != (name == "Deployment storage/efs-manager") {
			t.Errorf("%s: version %s became %s", name, version, changed[name])
		}
	}

	// The ports and policies of a cluster have one owner.
	second := helm{t, c.Config(), "second"}
	if _, err := second.install(chart, true, ""); err == nil || !strings.Contains(err.Error(), `key "meta.helm.sh/release-namespace" must equal "second": current value is "storage"`) {
		t.Errorf("a second release: got the error %v", err)
	}
	if set, err := client.AppsV1().DaemonSets("second").List(t.Context(), metav1.ListOptions{}); err != nil || len(set.Items) > 0 {
		t.Errorf("the refused release has made %v, %v", set, err)
	}

	h.uninstall()
	if _, err := client.AppsV1().Deployments("storage").Get(t.Context(), "efs-manager", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Deployment after helm uninstall: %v", err)
	}
	kept, err := client.CoreV1().PersistentVolumeClaims("storage").Get(t.Context(), claim.Name, metav1.GetOptions{})
	if err != nil || kept.DeletionTimestamp != nil {
		t.Errorf("the root claim after helm uninstall: %v, %v", kept, err)
	}
	if err := definition(t.Context(), c.Config()); err != nil {
		t.Errorf("the definition of SharedVolumes after helm uninstall: %v", err)
	}
	if _, err := h.install(chart, false, shared); err != nil { // the definition is still there
		t.Errorf("helm install after helm uninstall: %v", err)
	}
	h.uninstall()

	// A namespace that Terraform has made, or kubectl.
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "efs-stunnel"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	made := helm{t, c.Config(), "efs-stunnel"}
	for _, makeNamespace := range []bool{false, true} {
		if _, err := made.install(chart, makeNamespace, ""); err != nil {
			t.Errorf("helm install in a namespace that exists, with --create-namespace %v: %v", makeNamespace, err)
			continue
		}
		made.uninstall()
	}
}

// definition returns an error if that of SharedVolumes is not there, or is being deleted.
func definition(ctx context.Context, config *rest.Config) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	found, err := client.Resource(definitions).Get(ctx, "sharedvolumes.efs-stunnel.gnuthought.com", metav1.GetOptions{})
	if err == nil && found.GetDeletionTimestamp() != nil {
		err = apierrors.NewResourceExpired("it is being deleted")
	}
	return err
}
