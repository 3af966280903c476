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
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
	"gnuthought.com/efs-stunnel/test/integration/world"
)

const kustomizations = "../../deploy/kustomize"

// rendered are the objects of a kustomization, as users would apply them.
func rendered(t *testing.T, folder string) []*unstructured.Unstructured {
	t.Helper()
	var told bytes.Buffer
	command := exec.CommandContext(t.Context(), filepath.Join(os.Getenv(programsEnv), "kubectl"), "kustomize", folder)
	command.Stderr = &told
	text, err := command.Output()
	if err != nil {
		t.Fatalf("rendering %s: %v\n%s", folder, err, told.String())
	}
	var objects []*unstructured.Unstructured
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatalf("rendering %s: %v", folder, err)
		}
		objects = append(objects, object)
	}
	return objects
}

// only is the one object of a kind and a name, as its type.
func only[T any](t *testing.T, objects []*unstructured.Unstructured, kind, name string) *T {
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

// newGuardedWorld is a world in a cluster that has the policies of the component "admission" until
// the test is over.
func newGuardedWorld(t *testing.T) *world.World {
	t.Helper()
	w := newWorld(t)
	client, err := dynamic.NewForConfig(w.Config)
	if err != nil {
		t.Fatal(err)
	}
	resources := map[string]string{
		"ValidatingAdmissionPolicy":        "validatingadmissionpolicies",
		"ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
	}
	found := 0
	for _, object := range rendered(t, filepath.Join(kustomizations, "overlays/eks")) {
		resource, ok := resources[object.GetKind()]
		if !ok {
			continue
		}
		found++
		api := client.Resource(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource})
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
	return w
}

// managerClient may do everything, so that only policies refuse anything, and they take it for the
// manager.
func managerClient(w *world.World, namespace string) kubernetes.Interface {
	w.Helper()
	config := rest.CopyConfig(w.Config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":" + wellknown.ManagerServiceAccount,
		Groups:   []string{"system:masters"},
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		w.Fatal(err)
	}
	return client
}

// dry has the apiserver judge an object and store nothing.
func dry() metav1.CreateOptions { return metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}} }

// awaitRefused tries until a request is refused: the apiserver needs a moment to learn of a policy.
// The refusal must have some words, or something else refuses what the policy should.
func awaitRefused(w *world.World, words string, try func(ctx context.Context) error) {
	w.Helper()
	w.Eventually(fmt.Sprintf("the apiserver says %q", words), func(ctx context.Context) error {
		err := try(ctx)
		if err == nil {
			return errors.New("it lets the object in")
		}
		if !strings.Contains(err.Error(), words) {
			w.Errorf("the apiserver says %v, want %q", err, words)
		}
		return nil
	})
}
