package table

import (
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// A root claim that the binder sees before its volume would wait for 15 seconds.
func TestARootClaimIsCreatedAfterItsVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, nil, tableMap(tableOf(map[string]ports.Target{})))
		c.client.ClearActions()
		r := root{RootPair: volumes.RootPair{FileSystemID: "fs-1", Port: 20490, Namespace: namespace}}
		for _, want := range []string{"create persistentvolumes", "create persistentvolumeclaims"} {
			if err := c.applyRoot(t.Context(), r); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff([]string{want}, c.writes()); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
		}
	})
}

// The volume is bound to a claim that no cache has yet: a change planned from the caches would unbind it.
func TestRootsAreReadLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, claim := boundRoot("fs-1", 20490)
		c := start(t, nil, tableMap(tableOf(map[string]ports.Target{"fs-1": target(20490)})), v, claim)
		c.client.ClearActions()
		pair := volumes.RootPair{FileSystemID: "fs-1", Port: 20490, Namespace: namespace, Volume: v}
		if len(pair.Changes()) == 0 {
			t.Fatal("the cached pair needs nothing")
		}
		if err := c.applyRoot(t.Context(), root{RootPair: pair}); err != nil {
			t.Error(err)
		}
		if got := c.writes(); len(got) > 0 {
			t.Errorf("writes %q", got)
		}
	})
}

func TestFinishedJobsAreDeletedWithTheirClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, claim := boundRoot("fs-1", 20490)
		claim.Status.Phase = corev1.ClaimLost
		c := start(t, nil, tableMap(tableOf(map[string]ports.Target{"fs-1": target(20490)})), v, claim,
			job(1, batchv1.JobComplete), job(2, batchv1.JobFailed, wellknown.FinalizerOutcome), job(3, batchv1.JobSuspended))
		jobs, err := c.client.BatchV1().Jobs(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, j := range jobs.Items {
			left = append(left, j.Name)
		}
		if diff := cmp.Diff([]string{"efs-mount-fs-1-00002", "efs-mount-fs-1-00003"}, left); diff != "" {
			t.Errorf("jobs (-want +got):\n%s", diff)
		}
		// The claim is another one now, and the volume waits for it.
		made, err := c.client.CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), claim.Name, metav1.GetOptions{})
		if err != nil || made.Status.Phase == corev1.ClaimLost {
			t.Errorf("claim %+v, %v", made, err)
		}
		mended, err := c.client.CoreV1().PersistentVolumes().Get(t.Context(), v.Name, metav1.GetOptions{})
		if err != nil || mended.Spec.ClaimRef == nil || mended.Spec.ClaimRef.UID != "" || mended.Spec.ClaimRef.Name != claim.Name {
			t.Errorf("volume %+v, %v", mended.Spec.ClaimRef, err)
		}
		c.wantEvent("Warning RootVolumeRepaired delete claim: it has lost its volume")
	})
}

func job(number int, condition batchv1.JobConditionType, finalizers ...string) *batchv1.Job {
	name := mountjobs.Name{Kind: mountjobs.Mount, FileSystemID: "fs-1", Number: number}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name.String(), Labels: mountjobs.Labels(name.Kind, name.FileSystemID), Finalizers: finalizers,
		},
		Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: condition, Status: corev1.ConditionTrue}}},
	}
}

// A root volume of another installation becomes this one's when that one's namespace is gone.
func TestOrphanedRootIsAdopted(t *testing.T) {
	now := metav1.Now()
	for name, c := range map[string]struct {
		phase     corev1.PersistentVolumePhase
		namespace *corev1.Namespace
		want      []string
	}{
		"the namespace exists": {corev1.VolumeReleased, &corev1.Namespace{}, nil},
		"the claim exists":     {corev1.VolumeBound, nil, nil},
		"the namespace is being deleted": {
			corev1.VolumeReleased, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now, Finalizers: []string{"kubernetes"}}},
			[]string{"patch persistentvolumes", "create persistentvolumeclaims"},
		},
		"the namespace is gone": {corev1.VolumeReleased, nil, []string{"patch persistentvolumes", "create persistentvolumeclaims"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			objects := []runtime.Object{tableMap(tableOf(map[string]ports.Target{"fs-1": target(20490)})), otherRoot(c.phase)}
			if c.namespace != nil {
				c.namespace.Name = "elsewhere"
				objects = append(objects, c.namespace)
			}
			controller := start(t, nil, objects...)
			if diff := cmp.Diff(c.want, controller.writes()); diff != "" {
				t.Errorf("%s: writes (-want +got):\n%s", name, diff)
			}
			controller.wantEvent("Warning RootVolumeConflict file system fs-1 belongs to the installation in namespace elsewhere: uninstall one of the two, " +
				"or separate their file systems by --file-system-ids or --file-system-tags")
		})
	}
}

// Roots follow a decision only while its ConfigMaps are the latest.
func TestAnOldDecisionIsNotInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := tableMap(tableOf(map[string]ports.Target{"fs-1": target(20490)}))
		pinned := configMap(wellknown.PinnedConfigMap, nil)
		table.ResourceVersion, pinned.ResourceVersion = "10", "10"
		c := start(t, nil, table, pinned)
		now := c.inForce()
		if now == nil {
			t.Fatal("the latest decision is not in force")
		}
		older := table.DeepCopy()
		older.ResourceVersion = "9"
		for name, old := range map[string]decision{
			"another table":        {table: older, pinned: now.pinned},
			"another pinned table": {table: now.table, pinned: older},
			"no pinned table":      {table: now.table},
		} {
			c.decision.Store(&old)
			if c.inForce() != nil {
				t.Errorf("%s: it is in force", name)
			}
		}
		newer := table.DeepCopy()
		newer.ResourceVersion = "11"
		c.decision.Store(&decision{table: newer, pinned: now.pinned})
		if c.inForce() == nil {
			t.Error("not in force while the cache is behind")
		}
	})
}
