package objects_test

import (
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
)

func newStatusWriter() (objects.StatusWriter, *fake.FakeDynamicClient) {
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		v1alpha1.NodeTunnelsObjects(): v1alpha1.NodeTunnelsKind + "List",
	})
	return objects.StatusWriter{Client: client, Resource: v1alpha1.NodeTunnelsObjects(), Kind: v1alpha1.NodeTunnelsKind}, client
}

func verbs(client *fake.FakeDynamicClient) (all []string) {
	for _, action := range client.Actions() {
		all = append(all, action.GetVerb()+" "+action.GetSubresource())
	}
	client.ClearActions()
	return all
}

// TestStatusCostsOneWrite where the object exists; the first one creates it.
func TestStatusCostsOneWrite(t *testing.T) {
	w, client := newStatusWriter()
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n", UID: "u"}
	if err := w.Write(t.Context(), "n", v1alpha1.NodeTunnelsStatus{Version: "first"}, owner); err != nil {
		t.Fatal(err)
	}
	if got := verbs(client); !slices.Equal(got, []string{"patch status", "create ", "patch status"}) {
		t.Errorf("got %q", got)
	}
	if err := w.Write(t.Context(), "n", v1alpha1.NodeTunnelsStatus{Version: "second", Total: 2}, owner); err != nil {
		t.Fatal(err)
	}
	if got := verbs(client); !slices.Equal(got, []string{"patch status"}) {
		t.Errorf("got %q", got)
	}
	object, err := client.Resource(w.Resource).Get(t.Context(), "n", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := v1alpha1.Read[v1alpha1.NodeTunnels](object)
	if err != nil || got.Status.Version != "second" || got.Status.Total != 2 || len(got.OwnerReferences) != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestStatusWithoutDefinitionIsNotFound(t *testing.T) {
	w, client := newStatusWriter()
	client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(w.Resource.GroupResource(), "n")
	})
	if err := w.Write(t.Context(), "n", v1alpha1.NodeTunnelsStatus{}); !apierrors.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
}

// TestStatusOfAnotherInstallationIsNotWritten: two may have a file system of one id.
func TestStatusOfAnotherInstallationIsNotWritten(t *testing.T) {
	w, client := newStatusWriter()
	w.Installation = "first"
	for range 2 {
		if err := w.Write(t.Context(), "n", v1alpha1.NodeTunnelsStatus{Version: "ours"}); err != nil {
			t.Fatal(err)
		}
	}
	other := w
	other.Installation = "second"
	if err := other.Write(t.Context(), "n", v1alpha1.NodeTunnelsStatus{Version: "theirs"}); err == nil {
		t.Error("another installation's object was written")
	}
	object, err := client.Resource(w.Resource).Get(t.Context(), "n", metav1.GetOptions{})
	if err != nil || object.GetLabels()[wellknown.LabelInstallation] != "first" {
		t.Fatalf("got %v, %v", object, err)
	}
	if got, err := v1alpha1.Read[v1alpha1.NodeTunnels](object); err != nil || got.Status.Version != "ours" {
		t.Errorf("got %+v, %v", got, err)
	}
}
