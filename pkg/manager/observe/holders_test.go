package observe

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// TestDirectoriesThatJobsMake count for other claims before there is a volume: their path is on the file
// system of the Job, and in use while the claim of the setup exists.
func TestDirectoriesThatJobsMake(t *testing.T) {
	const path = "/team/data"
	reported := func(state operations.State) map[int]mountjobs.Reported {
		return map[int]mountjobs.Reported{1: {Report: operations.Report{Results: []operations.Result{{State: state}}}, At: time.Now()}}
	}
	for name, tt := range map[string]struct {
		kind         operations.Kind
		path         string
		reported     map[int]mountjobs.Reported
		withoutClaim bool
		by           types.UID // the claim that asks
		holds, inUse bool
	}{
		"a setup that runs":              {operations.Setup, path, nil, false, "2", true, true},
		"a setup that was done":          {operations.Setup, path, reported(operations.Done), false, "2", true, true},
		"a setup of a deleted claim":     {operations.Setup, path, nil, true, "2", true, false},
		"a setup that failed":            {operations.Setup, path, reported(operations.Failed), false, "2", false, false},
		"a setup without a known result": {operations.Setup, path, reported(operations.Unknown), false, "2", true, true},
		"the claim's own setup":          {operations.Setup, path, nil, false, "1", false, false},
		"a setup of another path":        {operations.Setup, "/team/other", nil, false, "2", false, false},
		"a cleanup":                      {operations.Cleanup, path, nil, false, "2", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			job, err := mountjobs.Build(mountjobs.Spec{
				Settings: mountjobs.Settings{Namespace: "efs-stunnel", Image: "image"}, FileSystemID: "fs-1", Number: 1,
				Operations: []operations.Operation{{Kind: tt.kind, Path: tt.path, Owner: operations.Owner{Volume: "pvc-1", Cluster: "c", Namespace: "team", Claim: "data", ClaimUID: "1"}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			job.UID, job.CreationTimestamp = "job", metav1.NewTime(time.Now())
			g := newGatherer(t, job, tt.reported)
			if !tt.withoutClaim {
				claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "data", UID: "1"}}
				if err := g.Caches.Claims.GetStore().Add(claim); err != nil {
					t.Fatal(err)
				}
			}
			state := g.State(tt.by)
			if got := slices.Equal(state.Holders(path), []string{"fs-1"}); got != tt.holds {
				t.Errorf("the path is on %q, want it on fs-1: %v", state.Holders(path), tt.holds)
			}
			if got := state.InUse("fs-1", path); got != tt.inUse {
				t.Errorf("in use is %v, want %v", got, tt.inUse)
			}
			if state.InUse("fs-2", path) {
				t.Error("it is in use on another file system, too")
			}
		})
	}
}
