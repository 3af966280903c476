package decide

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"gnuthought.com/efs-stunnel/pkg/volumes"
)

func TestExpand(t *testing.T) {
	tests := map[string]struct {
		request, volume, status string
		edit                    func(*corev1.PersistentVolumeClaim)
		want                    string
	}{
		"what fits stays":                    {request: "5Gi", volume: "5Gi", status: "5Gi"},
		"less than there is stays":           {request: "5Gi", volume: "8Gi", status: "8Gi"},
		"the volume grows first":             {request: "8Gi", volume: "5Gi", status: "5Gi", want: "volume 8Gi"},
		"then the claim says so":             {request: "8Gi", volume: "8Gi", status: "5Gi", want: "claim 8Gi"},
		"the claim says what the volume has": {request: "8Gi", volume: "10Gi", status: "5Gi", want: "claim 10Gi"},
		"what a resizer began is ended":      {request: "5Gi", volume: "5Gi", status: "5Gi", edit: resizing, want: "claim 5Gi"},
		"its failure is taken back":          {request: "5Gi", volume: "5Gi", status: "5Gi", edit: failedToResize, want: "claim 5Gi"},
		"other conditions stay":              {request: "5Gi", volume: "5Gi", status: "5Gi", edit: modifying},
		"another claim's volume stays":       {request: "8Gi", volume: "5Gi", status: "5Gi", edit: func(c *corev1.PersistentVolumeClaim) { c.UID = "another" }},
		"a claim of another volume waits":    {request: "8Gi", volume: "5Gi", status: "5Gi", edit: onVolume("other")},
		"an unbound claim waits":             {request: "8Gi", volume: "5Gi", status: "5Gi", edit: func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimPending }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			volume := newVolume(t, func(o *corev1.PersistentVolume) {
				o.Spec.Capacity[corev1.ResourceStorage] = resource.MustParse(tt.volume)
			})
			claim := editedClaim(onVolume(volume.Name), func(c *corev1.PersistentVolumeClaim) {
				c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(tt.request)
				c.Status.Phase = corev1.ClaimBound
				c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(tt.status)}
			})
			if tt.edit != nil {
				tt.edit(claim)
			}
			if got := expanded(volume, claim); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// expanded plans the next number for a volume and its claim, and writes it.
func expanded(volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) (step string) {
	p := volumePlanner{Plan: &Plan{}, volume: Volume{Volume: volumes.Volume{Object: volume, Name: volume.Name}, Claim: claim}}
	p.expand()
	for _, change := range p.Changes {
		switch change := change.(type) {
		case ExpandVolume:
			volume.Spec.Capacity[corev1.ResourceStorage] = change.Size
			step += "volume " + change.Size.String()
		case ExpandClaim:
			claim.Status.Capacity[corev1.ResourceStorage] = change.Size
			step += "claim " + change.Size.String()
		}
	}
	return step
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
		if expanded(volume, claim) == "" {
			t.Error("a step is missing")
		}
	}
	if step := expanded(volume, claim); step != "" {
		t.Errorf("there is still to do: %s", step)
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
