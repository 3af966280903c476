//go:build integration

package integration_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/test/integration/kubelet"
	"gnuthought.com/efs-stunnel/test/integration/testenv"
)

// copyOf has a claim be a copy of another one.
func copyOf(source string) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.Selector = nil // the file system is that of the source
		claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: source}
	}
}

// createSource returns a bound claim with a file and what a copy must not follow.
func (f *fixture) createSource() (claim *corev1.PersistentVolumeClaim, path string) {
	f.Helper()
	claim = f.createClaim("source")
	path = f.waitForBound(claim).Spec.NFS.Path
	f.writeFile(path)
	f.check(errors.Join(
		os.Mkdir(filepath.Join(f.local(path), "sub"), 0o750),
		os.Symlink("/etc/passwd", filepath.Join(f.local(path), "link")),
		os.Link(filepath.Join(f.local(path), "file"), filepath.Join(f.local(path), "sub", "again")),
	))
	return claim, path
}

func (f *fixture) expectCopy(path string) {
	f.Helper()
	f.expectFile(path)
	target, err := os.Readlink(filepath.Join(f.local(path), "link"))
	first, firstErr := os.Stat(filepath.Join(f.local(path), "file"))
	again, againErr := os.Stat(filepath.Join(f.local(path), "sub", "again"))
	if err := errors.Join(err, firstErr, againErr); err != nil || target != "/etc/passwd" || !os.SameFile(first, again) {
		f.Errorf("%s is no copy: the link leads to %q (%v)\n%s", path, target, err, f.Dump())
	}
	if left := f.names("/.efs-stunnel/clones"); len(left) > 0 {
		f.Errorf("copies %q are not complete\n%s", left, f.Dump())
	}
}

// createForeign is a claim that is bound to a volume which no provisioner has made.
func (f *fixture) createForeign(name string) {
	f.Helper()
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: f.Named(name)},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: oneGibibyte(), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, StorageClassName: f.Named("manual"),
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv"}},
			ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: f.Team, Name: name},
		},
	}
	_, err := f.volumes().Create(f.Context(), volume, metav1.CreateOptions{})
	f.check(err)
	f.NewClaim(name, f.Named("manual"), func(claim *corev1.PersistentVolumeClaim) { claim.Spec.VolumeName = volume.Name })
	f.waitForPhase(volume.Name, corev1.VolumeBound)
}

func TestClaimIsCloned(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	source, from := f.createSource()
	clone := f.createClaim("clone", copyOf(source.Name))
	to := f.waitForBound(clone).Spec.NFS.Path
	if to == from {
		t.Fatalf("both have the directory %s", to)
	}
	f.expectCopy(to)
	f.waitForEvent(clone, wellknown.EventProvisioning, wellknown.CloneJobPrefix, "copies claim source to directory "+to)
	f.waitForEvent(clone, wellknown.EventProvisioningSucceeded, "copied 5 files of claim source")
	f.expectEventCount(clone, 0, wellknown.EventProvisioningFailed)
	f.expectVolumes(source, clone)
	f.deleteClaims(clone)
	f.WaitForVolumeDeleted(clone)
	f.waitForEmptyTrash()
	f.expectFile(from)
	f.WaitForJobsReleased()
	if jobs := f.jobs(t.Context(), mountjobs.Clone, f.fileSystem); len(jobs) != 1 {
		t.Errorf("there are %d clone Jobs", len(jobs))
	}
}

// TestCloneWaitsForItsSource: a claim may be created before the one that it is a copy of.
func TestCloneWaitsForItsSource(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	clone := f.createClaim("clone", copyOf("source"))
	f.waitForEvent(clone, wellknown.EventProvisioningFailed, `waiting: claim "source", which is to be copied, does not exist`)
	f.expectNotRejected(clone)
	f.createClaim("source")
	f.waitForBound(clone)
}

// TestSourcesThatAreRefused leaves out sources of other namespaces: without the feature
// CrossNamespaceVolumeDataSource, the apiserver drops their namespace.
func TestSourcesThatAreRefused(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	other := f.NewFileSystem()
	source, from := f.createSource()
	snapshots := "snapshot.storage.k8s.io"
	large := func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("9Gi")}
	}
	f.waitForBound(f.createClaim("large", large))
	f.createForeign("foreign")
	for name, c := range map[string]struct {
		edit  func(*corev1.PersistentVolumeClaim)
		texts []string
	}{
		"snapshot": {func(claim *corev1.PersistentVolumeClaim) {
			claim.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: &snapshots, Kind: "VolumeSnapshot", Name: "s"}
		}, []string{"VolumeSnapshot", "cannot be copied into a volume"}},
		"smaller":   {copyOf("large"), []string{`claim "large" cannot be copied`, "requests 9Gi"}},
		"provision": {copyOf("foreign"), []string{`claim "foreign" cannot be copied`, "was not made by this provisioner"}},
		"other": {func(claim *corev1.PersistentVolumeClaim) {
			copyOf(source.Name)(claim)
			testenv.WithMatchLabel(wellknown.LabelFileSystemID, other)(claim)
		}, []string{"is on file system " + f.fileSystem}},
	} {
		claim := f.createClaim(name, c.edit)
		f.waitForRejection(claim, c.texts...)
	}
	if jobs := f.jobs(t.Context(), mountjobs.Clone, f.fileSystem); len(jobs) > 0 {
		t.Errorf("there are %d clone Jobs\n%s", len(jobs), f.Dump())
	}
	f.expectFile(from)
}

// TestManagerThatIsKilledWhileAClaimIsCloned: the next one uses what the Job has copied.
func TestManagerThatIsKilledWhileAClaimIsCloned(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	first := f.startManager(nil)
	source, _ := f.createSource()
	f.WaitForJobsReleased()
	g := newGate()
	f.Kubelet.QueueBehavior(g.behavior())
	clone := f.createClaim("clone", copyOf(source.Name))
	f.waitForGate(g)
	first.halt()
	f.startManager(nil)
	close(g.open)
	f.expectCopy(f.waitForBound(clone).Spec.NFS.Path)
	f.expectVolumes(source, clone)
	if jobs := f.jobs(t.Context(), mountjobs.Clone, f.fileSystem); len(jobs) != 1 {
		t.Errorf("there are %d clone Jobs\n%s", len(jobs), f.Dump())
	}
}

// TestCloneJobThatIsKilledIsFollowedByAnother for which the same claim waits.
func TestCloneJobThatIsKilledIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	source, _ := f.createSource()
	f.WaitForJobsReleased()
	f.Kubelet.QueueBehavior(kubelet.Behavior{Ending: kubelet.Killed}, kubelet.Behavior{Ending: kubelet.Terminated})
	clone := f.createClaim("clone", copyOf(source.Name))
	f.expectCopy(f.waitForBound(clone).Spec.NFS.Path)
	if jobs := f.jobs(t.Context(), mountjobs.Clone, f.fileSystem); len(jobs) != 3 {
		t.Errorf("there are %d clone Jobs\n%s", len(jobs), f.Dump())
	}
}

// TestCopyOfADeletedClaimIsRemoved: the copy was not complete when its claim was deleted.
func TestCopyOfADeletedClaimIsRemoved(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	source, from := f.createSource()
	f.WaitForJobsReleased()
	g := newGate()
	stopped := g.behavior()
	stopped.Ending = kubelet.Terminated
	f.Kubelet.QueueBehavior(stopped)
	clone := f.createClaim("clone", copyOf(source.Name))
	f.waitForGate(g)
	copied := "/.efs-stunnel/clones/" + volumes.VolumeName(clone.UID)
	f.check(os.MkdirAll(f.local(copied+"/copy/sub"), 0o700))
	f.deleteClaims(clone)
	f.waitForClaimDeleted(clone)
	close(g.open)
	f.WaitForJobsReleased()
	f.waitForEmptyTrash()
	f.expectNothingAt(copied)
	f.expectNoTrace(ownDirectory(clone))
	f.expectVolumes(source)
	f.expectFile(from)
}
