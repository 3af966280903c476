//go:build integration

package integration_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/test/integration/cluster"
	"gnuthought.com/efs-stunnel/test/integration/testenv"
)

const kustomizations = "../../deploy/kustomize"

// render returns the objects of a kustomization, as users apply them.
func render(t *testing.T, folder string) []*unstructured.Unstructured {
	t.Helper()
	var stderr bytes.Buffer
	command := exec.CommandContext(t.Context(), filepath.Join(os.Getenv(cluster.ProgramsEnv), "kubectl"), "kustomize", folder)
	command.Stderr = &stderr
	text, err := command.Output()
	if err != nil {
		t.Fatalf("rendering %s: %v\n%s", folder, err, stderr.String())
	}
	return decode(t, folder, string(text))
}

// decode returns the objects of a text in YAML, whose source is named in errors.
func decode(t *testing.T, source, text string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	for document := range strings.SplitSeq(text, "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatalf("decoding %s: %v", source, err)
		}
		objects = append(objects, object)
	}
	return objects
}

// find returns the object of a kind and a name.
func find[T any](t *testing.T, objects []*unstructured.Unstructured, kind, name string) *T {
	t.Helper()
	for _, object := range objects {
		if object.GetKind() == kind && object.GetName() == name {
			typed := new(T)
			if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, typed, true); err != nil {
				t.Fatalf("%s %s: %v", kind, name, err)
			}
			return typed
		}
	}
	t.Fatalf("there is no %s %s", kind, name)
	return nil
}

// newEnvWithPolicies also creates the policies of the component "admission" until the end of the test.
func newEnvWithPolicies(t *testing.T) *testenv.Env {
	t.Helper()
	env := newEnv(t)
	resources := map[string]string{
		"ValidatingAdmissionPolicy":        "validatingadmissionpolicies",
		"ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
	}
	found := 0
	for _, object := range render(t, filepath.Join(kustomizations, "overlays/eks")) {
		resource, ok := resources[object.GetKind()]
		if !ok {
			continue
		}
		found++
		api := env.Dynamic.Resource(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource})
		if _, err := api.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := api.Delete(context.WithoutCancel(t.Context()), object.GetName(), metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	if found < 8 {
		t.Fatalf("the overlay has %d policies and bindings", found)
	}
	return env
}

// managerClient has the manager's user name and all rights, so that only policies refuse its requests.
func managerClient(env *testenv.Env, namespace string) kubernetes.Interface {
	env.Helper()
	config := rest.CopyConfig(env.Config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":" + wellknown.ManagerServiceAccount,
		Groups:   []string{"system:masters"},
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		env.Fatal(err)
	}
	return client
}

// dryRun has the apiserver validate an object without storing it.
func dryRun() metav1.CreateOptions { return metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}} }

// waitForRefusal repeats a request until it is refused: the apiserver needs a moment to observe a
// policy. The error must have a text, or another policy refuses the request.
func waitForRefusal(env *testenv.Env, text string, request func(ctx context.Context) error) {
	env.Helper()
	env.Eventually(fmt.Sprintf("the apiserver refuses with %q", text), func(ctx context.Context) error {
		err := request(ctx)
		if err == nil {
			return errors.New("it accepts the object")
		}
		if !strings.Contains(err.Error(), text) {
			env.Errorf("the apiserver refuses with %v, want %q", err, text)
		}
		return nil
	})
}
