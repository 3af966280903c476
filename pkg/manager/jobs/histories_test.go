package jobs

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
)

// histories is how many stories a run of the test has; each takes some tens of milliseconds.
const histories = 40

// step is one thing that a user, an administrator or the manager does.
func (c *cluster) step() {
	switch c.rand.IntN(16) {
	case 0, 1, 2:
		c.addClaim([]corev1.PersistentVolumeReclaimPolicy{"Delete", "Delete", "Retain"}[c.rand.IntN(3)], "")
	case 3, 4, 5:
		if all := c.claimsThere(); len(all) > 0 {
			c.deleteClaim(all[c.rand.IntN(len(all))])
		}
	case 6: // the administrator saves a volume, or gives its data away
		if v := c.anyVolume(func(v *corev1.PersistentVolume) bool { return isReleased(v) || c.rand.IntN(4) == 0 }); v != nil {
			policy := corev1.PersistentVolumeReclaimRetain
			if isRetained(v) && c.rand.IntN(4) == 0 {
				policy = corev1.PersistentVolumeReclaimDelete
			}
			c.say("cluster %d: the policy of %s is %s now", c.number, v.Name, policy)
			v.Spec.PersistentVolumeReclaimPolicy = policy
			c.store(v)
		}
	case 7, 8:
		if v := c.anyVolume(func(v *corev1.PersistentVolume) bool { return isReleased(v) && isRetained(v) }); v != nil {
			c.say("cluster %d: the retained volume %s is deleted by hand", c.number, v.Name)
			if !c.isOwner(v) {
				delete(c.retained, v.Name) // its cleanup was over when it was saved: only the object protects it
			}
			c.check(c.gatherer.Caches.Volumes.GetStore().Delete(v))
		}
	case 9: // a cleanup is called off: the volume is given to another claim
		if v := c.anyVolume(isReleased); v != nil && c.isKnown(v) && len(c.files()) > 0 {
			c.bind(v, c.addClaim("Delete", v.Name))
		}
	case 10, 11, 12:
		c.run(1 + c.rand.IntN(40))
	case 13:
		c.run(0)
	default:
		c.settle()
	}
}

// wantNothingLost is the rule: what was retained and not removed by a person is there, and so is
// what a volume that is bound has.
func (f *sharedPath) wantNothingLost() {
	f.t.Helper()
	files := f.files()
	for volume, kept := range f.retained {
		for _, file := range kept {
			if !slices.Contains(files, file) {
				f.t.Fatalf("%s of the retained volume %s is lost; %v are there\n%s", file, volume, files, strings.Join(f.story, "\n"))
			}
		}
	}
	for _, c := range f.clusters {
		for _, v := range c.volumes() {
			if v.Status.Phase == corev1.VolumeBound && !slices.Contains(files, string(v.Spec.ClaimRef.UID)) {
				f.t.Fatalf("what the bound volume %s has is lost; %v are there\n%s", v.Name, files, strings.Join(f.story, "\n"))
			}
		}
	}
}

// TestRetainedDataIsNeverLost has claims of one or two clusters come to one directory and leave it in
// any order, with Jobs that die at any step and administrators who change their minds.
func TestRetainedDataIsNeverLost(t *testing.T) {
	for seed := range uint64(histories) {
		synctest.Test(t, func(t *testing.T) {
			f := newSharedPath(t, seed, 1+int(seed%2))
			for range 60 {
				f.clusters[f.rand.IntN(len(f.clusters))].step()
				f.wantNothingLost()
			}
			f.end()
		})
	}
}

// end deletes every claim. Whatever came before, nothing waits for anything for ever.
func (f *sharedPath) end() {
	for _, c := range f.clusters {
		for _, claim := range c.claimsThere() {
			c.deleteClaim(claim)
		}
	}
	for range 8 {
		for _, c := range f.clusters {
			c.run(0)
			c.settle()
			f.wantNothingLost()
		}
	}
	for _, c := range f.clusters {
		if v := c.anyVolume(func(v *corev1.PersistentVolume) bool { return !isRetained(v) }); v != nil {
			f.t.Fatalf("volume %s is never cleaned up\n%s", v.Name, strings.Join(f.story, "\n"))
		}
	}
}
