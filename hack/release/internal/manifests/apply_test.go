//go:build integration

package manifests

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"gnuthought.com/efs-stunnel/test/integration/cluster"
)

// TestApplyingTwiceChangesNothing on the apiserver, and no list of a policy is longer there than in the manifest: tools
// that compare without the apiserver would see a change for ever.
func TestApplyingTwiceChangesNothing(t *testing.T) {
	c := cluster.ForTest(t)
	client, err := dynamic.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	discoverer, err := discovery.NewDiscoveryClientForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discoverer))
	components := []string{"admission", "network-policy", "read-ahead", "shared-volumes", "startup-taint"}
	policy := schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicy"}
	if _, err := mapper.RESTMapping(policy, "v1"); err == nil { // Kubernetes 1.36 and later, as the component asks for
		components = append(components, "fast-binding")
	}
	rendered, err := read(t).EKS(images(), components...)
	if err != nil {
		t.Fatal(err)
	}
	apply := func(object *unstructured.Unstructured, dryRun ...string) *unstructured.Unstructured {
		t.Helper()
		kind := object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			t.Fatal(err)
		}
		applied, err := client.Resource(mapping.Resource).Namespace(object.GetNamespace()).
			Apply(t.Context(), object.GetName(), object, metav1.ApplyOptions{FieldManager: "gitops", Force: true, DryRun: dryRun})
		if err != nil {
			t.Fatalf("applying %s %s: %v", kind.Kind, object.GetName(), err)
		}
		return applied
	}
	var objects []*unstructured.Unstructured
	for _, r := range rendered.Resources() {
		text, err := r.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		var parsed unstructured.Unstructured
		if err := parsed.UnmarshalJSON(text); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, &parsed)
		apply(&parsed)
	}
	for _, object := range objects {
		before := apply(object)
		after := apply(object, metav1.DryRunAll)
		if diff := cmp.Diff(withoutTimes(before), withoutTimes(after)); diff != "" {
			t.Errorf("%s %s: a second apply changes (-before +after):\n%s", object.GetKind(), object.GetName(), diff)
		}
		if before.GetGeneration() > 1 {
			t.Errorf("%s %s: the second apply made generation %d", object.GetKind(), object.GetName(), before.GetGeneration())
		}
		if kind := object.GetKind(); strings.Contains(kind, "AdmissionPolicy") {
			if diff := cmp.Diff(object.Object["spec"], after.Object["spec"]); diff != "" {
				t.Errorf("%s %s: the apiserver adds (-manifest +apiserver):\n%s", kind, object.GetName(), diff)
			}
		}
	}
}

// withoutTimes returns an object without what says when it was applied.
func withoutTimes(object *unstructured.Unstructured) map[string]any {
	kept := maps.Clone(object.DeepCopy().Object)
	metadata, _ := kept["metadata"].(map[string]any)
	delete(metadata, "managedFields")
	return kept
}
