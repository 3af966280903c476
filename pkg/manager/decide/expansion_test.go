package decide

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

func TestExpand(t *testing.T) {
	size := func(text string) *resource.Quantity {
		q := resource.MustParse(text)
		return &q
	}
	tests := map[string]struct {
		request, volume, status string
		edit                    func(*corev1.PersistentVolumeClaim)
		want                    Expansion
	}{
		"what fits stays":                    {request: "5Gi", volume: "5Gi", status: "5Gi"},
		"less than there is stays":           {request: "5Gi", volume: "8Gi", status: "8Gi"},
		"the volume grows first":             {request: "8Gi", volume: "5Gi", status: "5Gi", want: Expansion{Volume: size("8Gi")}},
		"then the claim says so":             {request: "8Gi", volume: "8Gi", status: "5Gi", want: Expansion{Claim: size("8Gi")}},
		"the claim says what the volume has": {request: "8Gi", volume: "10Gi", status: "5Gi", want: Expansion{Claim: size("10Gi")}},
		"what a resizer began is ended":      {request: "5Gi", volume: "5Gi", status: "5Gi", edit: resizing, want: Expansion{Claim: size("5Gi")}},
		"its failure is taken back":          {request: "5Gi", volume: "5Gi", status: "5Gi", edit: failedToResize, want: Expansion{Claim: size("5Gi")}},
		"other conditions stay":              {request: "5Gi", volume: "5Gi", status: "5Gi", edit: modifying},
		"another claim's volume stays":       {request: "8Gi", volume: "5Gi", status: "5Gi", edit: func(c *corev1.PersistentVolumeClaim) { c.UID = "another" }},
		"a claim of another volume waits":    {request: "8Gi", volume: "5Gi", status: "5Gi", edit: onVolume("other")},
		"an unbound claim waits":             {request: "8Gi", volume: "5Gi", status: "5Gi", edit: func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimPending }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			volume := newVolume(t, func(o *corev1.PersistentVolume) { o.Spec.Capacity[corev1.ResourceStorage] = *size(tt.volume) })
			claim := editedClaim(onVolume(volume.Name), func(c *corev1.PersistentVolumeClaim) {
				c.Spec.Resources.Requests[corev1.ResourceStorage] = *size(tt.request)
				c.Status.Phase = corev1.ClaimBound
				c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: *size(tt.status)}
			})
			if tt.edit != nil {
				tt.edit(claim)
			}
			if diff := cmp.Diff(tt.want, Expand(volume, claim)); diff != "" {
				t.Errorf("expansion mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

func resizing(claim *corev1.PersistentVolumeClaim) {
	claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue}}
}

func failedToResize(claim *corev1.PersistentVolumeClaim) {
	claim.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{
		corev1.ResourceStorage: corev1.PersistentVolumeClaimNodeResizeInfeasible,
	}
}

func modifying(claim *corev1.PersistentVolumeClaim) {
	claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimVolumeModifyingVolume, Status: corev1.ConditionTrue}}
}

// Step by step, a claim that has grown comes to rest.
func TestExpandEnds(t *testing.T) {
	volume := newVolume(t)
	claim := editedClaim(onVolume(volume.Name), func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("7Gi")
		c.Status.Phase, c.Status.Capacity = corev1.ClaimBound, corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")}
	})
	for range 2 {
		step := Expand(volume, claim)
		if step.Volume != nil {
			volume.Spec.Capacity[corev1.ResourceStorage] = *step.Volume
		}
		if step.Claim != nil {
			claim.Status.Capacity[corev1.ResourceStorage] = *step.Claim
		}
	}
	if step := Expand(volume, claim); step != (Expansion{}) {
		t.Errorf("there is still to do: %+v", step)
	}
	if got := claim.Status.Capacity[corev1.ResourceStorage]; got.String() != "7Gi" {
		t.Errorf("the claim says %s", got.String())
	}
}

// What a claim's status is before and after, as the apiserver merges it.
func TestExpandedStatus(t *testing.T) {
	claim := editedClaim(func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("7Gi")
		c.Status.Phase, c.Status.Capacity = corev1.ClaimBound, corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")}
	})
	done := claim.DeepCopy()
	done.Status.Capacity[corev1.ResourceStorage] = resource.MustParse("8Gi")
	done.Status.AllocatedResources = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("7Gi")}
	tests := map[string]struct {
		edit func(*corev1.PersistentVolumeClaim)
		want *corev1.PersistentVolumeClaim
	}{
		"grown":                  {nil, done},
		"marked by a resizer":    {resizing, done},
		"failed before":          {failedToResize, done},
		"another condition kept": {modifying, func() *corev1.PersistentVolumeClaim { c := done.DeepCopy(); modifying(c); return c }()},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before := claim.DeepCopy()
			if tt.edit != nil {
				tt.edit(before)
			}
			got := &corev1.PersistentVolumeClaim{}
			patch(t, before, map[string]any{"status": ExpandedStatus(before, resource.MustParse("8Gi"))}, got)
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("status mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

// patch merges as the apiserver does.
func patch(t *testing.T, before any, changes map[string]any, after any) {
	t.Helper()
	original, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	change, err := json.Marshal(changes)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := strategicpatch.StrategicMergePatch(original, change, after)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(merged, after); err != nil {
		t.Fatal(err)
	}
}

func editedClaim(edits ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	claim := newClaim()
	for _, edit := range edits {
		edit(claim)
	}
	return claim
}

func onVolume(name string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = name }
}
