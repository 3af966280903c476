package v1alpha1_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

const statusCRDs = "../../../deploy/kustomize/base/status-crds.yaml"

func TestStatusDefinitionsAreThoseOfTheTypes(t *testing.T) {
	types := map[string]reflect.Type{
		v1alpha1.FileSystemKind + " " + v1alpha1.FileSystemResource + " efsfs":          reflect.TypeFor[v1alpha1.FileSystem](),
		v1alpha1.NodeTunnelsKind + " " + v1alpha1.NodeTunnelsResource + " efsnode":      reflect.TypeFor[v1alpha1.NodeTunnels](),
		v1alpha1.InstallationKind + " " + v1alpha1.InstallationResource + " efsinstall": reflect.TypeFor[v1alpha1.Installation](),
	}
	for _, crd := range readDefinitions(t, statusCRDs) {
		names, version := crd.Spec.Names, crd.Spec.Versions[0]
		name := names.Kind + " " + names.Plural + " " + names.ShortNames[0]
		typed, ok := types[name]
		delete(types, name)
		if _, subresource := version.Subresources["status"]; !ok || !subresource || crd.Spec.Scope != "Cluster" ||
			crd.Name != names.Plural+"."+v1alpha1.GroupName || version.Name != v1alpha1.Version {
			t.Errorf("got %+v", crd)
			continue
		}
		compare(t, names.Kind, typed, version.Schema.OpenAPIV3Schema)
	}
	if len(types) > 0 {
		t.Errorf("no definition for %v", types)
	}
}

var (
	morning = time.Date(2026, 1, 2, 8, 0, 0, 0, time.UTC)
	evening = morning.Add(12 * time.Hour)
)

func conflict(message string) status.Condition {
	return status.Condition{Reason: wellknown.EventPortConflict, Message: message, Since: morning}
}

func TestConditionsOfOneTypeAreOne(t *testing.T) {
	missing := status.Condition{Reason: wellknown.EventFileSystemMissing, Message: "c", Since: evening}
	want := []metav1.Condition{
		{Type: status.Usable, Status: metav1.ConditionFalse, Reason: "PortConflict", Message: "a; b", LastTransitionTime: metav1.NewTime(morning)},
		{Type: status.Listed, Status: metav1.ConditionFalse, Reason: "FileSystemMissing", Message: "c", LastTransitionTime: metav1.NewTime(evening)},
		{Type: status.RootVolumeReady, Status: metav1.ConditionTrue, Reason: "AsExpected", LastTransitionTime: metav1.NewTime(evening)},
		{Type: status.Swept, Status: metav1.ConditionTrue, Reason: "AsExpected", LastTransitionTime: metav1.NewTime(evening)},
		{Type: status.Surveyed, Status: metav1.ConditionTrue, Reason: "AsExpected", LastTransitionTime: metav1.NewTime(evening)},
		{Type: status.AuthorityValid, Status: metav1.ConditionTrue, Reason: "AsExpected", LastTransitionTime: metav1.NewTime(evening)},
		{Type: status.SizesEnforced, Status: metav1.ConditionTrue, Reason: "AsExpected", LastTransitionTime: metav1.NewTime(evening)},
	}
	got := v1alpha1.NewConditions(status.FileSystem, []status.Condition{conflict("a"), conflict("b"), missing}, nil, evening)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("conditions mismatch (-want +got):\n%s", diff)
	}
}

// TestConditionKeepsItsTime: another leader found it as it was.
func TestConditionKeepsItsTime(t *testing.T) {
	before := v1alpha1.NewConditions(status.FileSystem, []status.Condition{conflict("a")}, nil, morning)
	again := conflict("a")
	again.Since = evening
	if diff := cmp.Diff(before, v1alpha1.NewConditions(status.FileSystem, []status.Condition{again}, before, evening)); diff != "" {
		t.Errorf("conditions mismatch (-before +after):\n%s", diff)
	}
	if got := v1alpha1.NewConditions(status.FileSystem, nil, before, evening)[0]; !got.LastTransitionTime.Time.Equal(evening) {
		t.Errorf("it ended at %s", got.LastTransitionTime)
	}
}

// TestConditionHasATime, which the apiserver requires, when no status.Set has given it one.
func TestConditionHasATime(t *testing.T) {
	unset := conflict("a")
	unset.Since = time.Time{}
	got := v1alpha1.NewConditions(status.FileSystem, []status.Condition{unset}, nil, evening)[0]
	if got.Status != metav1.ConditionFalse || !got.LastTransitionTime.Time.Equal(evening) {
		t.Errorf("got %+v", got)
	}
}

func TestTunnelsAreLimited(t *testing.T) {
	var all []v1alpha1.Tunnel
	for i := range 300 {
		all = append(all, v1alpha1.Tunnel{Name: fmt.Sprintf("fs-%03d", i), InUse: i%2 == 0})
	}
	all[299].Problems = []v1alpha1.Problem{v1alpha1.NewProblem(conflict("a"))}
	got := v1alpha1.NewTunnels(all)
	idle := func(tunnel v1alpha1.Tunnel) bool { return !tunnel.InUse && tunnel.Problems == nil }
	if len(got) != v1alpha1.MaxTunnels || got[0].Name != "fs-299" || got[1].Name != "fs-000" || slices.ContainsFunc(got, idle) {
		t.Errorf("got %d tunnels: %v", len(got), got)
	}
}

func TestProblemNamesItsCause(t *testing.T) {
	c := conflict("a")
	if got := v1alpha1.NewProblem(c); got.Cause != nil {
		t.Errorf("got %v", got.Cause)
	}
	c.Cause = status.Reference{Subject: status.Subject{Kind: status.MountTarget, Name: "10.0.0.4"}, Reason: "Timeout"}
	if diff := cmp.Diff(&v1alpha1.Cause{Kind: "MountTarget", Name: "10.0.0.4", Reason: "Timeout"}, v1alpha1.NewProblem(c).Cause); diff != "" {
		t.Errorf("cause mismatch (-want +got):\n%s", diff)
	}
}
