//go:build integration

package integration_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/plugin/rebuild"
)

func (f *fixture) choice(policy corev1.PersistentVolumeReclaimPolicy) rebuild.Choice {
	return rebuild.Choice{Class: f.class, Policy: policy, Size: resource.MustParse("1Gi"), AccessMode: corev1.ReadWriteMany}
}

// rebuild plays the plugin's command: it plans, and applies the plan if it is wanted.
func (f *fixture) rebuild(lost requests.Lost, apply bool, points ...rebuild.AccessPoint) ([]rebuild.Item, error) {
	f.Helper()
	table, err := f.Table(f.Context())
	f.check(err)
	r := f.runner()
	items, _, err := r.PlanRebuild(f.Context(), []string{f.fileSystem}, lost, rebuild.Rebuild{
		Cluster: rebuild.Cluster{UID: f.ClusterUID, Provisioner: f.Provisioner, Targets: table.Targets, Points: points},
		Choice:  f.choice(corev1.PersistentVolumeReclaimRetain),
	})
	if err != nil || !apply {
		return items, err
	}
	f.check(r.Apply(f.Context(), items, f.ClusterUID, &lost))
	return items, r.AwaitBound(f.Context(), items, time.Minute)
}

// expectStates of the items, in the order of their paths.
func (f *fixture) expectStates(when string, items []rebuild.Item, want ...rebuild.State) {
	f.Helper()
	var got []rebuild.State
	for _, item := range items {
		got = append(got, item.State)
	}
	if !slices.Equal(got, want) {
		f.Errorf("%s: %v, want %v: %+v", when, got, want, items)
	}
}

// lose deletes the claims and volumes of a retaining class, as if the cluster had never had them.
func (f *fixture) lose(all ...provisioned) {
	f.Helper()
	for _, p := range all {
		f.writeFile(p.path)
		f.deleteClaims(p.claim)
		f.waitForClaimDeleted(p.claim)
		f.check(f.volumes().Delete(f.Context(), p.volume.Name, metav1.DeleteOptions{}))
		f.WaitForVolumeDeleted(p.claim)
	}
}

// TestClaimsAndVolumesAreRebuiltFromTheLedger after all objects of a cluster are deleted.
func TestClaimsAndVolumesAreRebuiltFromTheLedger(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	f.class = f.NewClass("retaining", nil, retaining).Name
	one, two := f.provision("one", f.class), f.provision("two", f.class)
	f.lose(one, two)

	own := requests.Lost{Cluster: f.ClusterUID}
	items, err := f.rebuild(own, false)
	f.check(err)
	f.expectStates("a dry run", items, rebuild.Planned, rebuild.Planned)
	var text bytes.Buffer
	f.check(rebuild.PrintObjects(&text, "", items))
	for _, p := range []provisioned{one, two} {
		if !strings.Contains(text.String(), "name: "+p.volume.Name) {
			t.Errorf("volume %s is not printed:\n%s", p.volume.Name, text.String())
		}
		if _, err := f.volumes().Get(t.Context(), p.volume.Name, metav1.GetOptions{}); err == nil {
			t.Error("a dry run has made a volume")
		}
	}
	items, err = f.rebuild(own, true)
	f.check(err)
	f.expectStates("rebuilt", items, rebuild.Done, rebuild.Done)
	f.expectRebuilt(one, two)
	items, err = f.rebuild(own, true)
	f.check(err)
	f.expectStates("a second run", items, rebuild.Exists, rebuild.Exists)

	// The manager cares for them as for its own: with Delete, the directory goes.
	f.setReclaimPolicy(one.volume.Name, corev1.PersistentVolumeReclaimDelete)
	f.waitForFinalizer(one.volume.Name)
	f.deleteClaims(one.claim)
	f.waitForVolumeDeleted(one.volume.Name)
	f.expectNoTrace(one.path)
	f.expectFile(two.path)
	f.expectNoLedgerJobs()
}

func (f *fixture) expectRebuilt(all ...provisioned) {
	f.Helper()
	for _, p := range all {
		claim, volume := f.WaitForBound(p.claim)
		if volume.Name != p.volume.Name || volume.Spec.NFS.Path != p.path || claim.UID == p.claim.UID {
			f.Errorf("claim %s (%s) has volume %s on %s, want %s on %s", claim.Name, claim.UID, volume.Name, volume.Spec.NFS.Path, p.volume.Name, p.path)
		}
		if got, want := volume.Spec.MountOptions, p.volume.Spec.MountOptions; !slices.Equal(got, want) {
			f.Errorf("volume %s has the mount options %v, want %v", volume.Name, got, want)
		}
		f.expectFile(p.path)
	}
}

// TestALostClusterIsTakenOverOnceItHasLeftNoFreshMark and one that lives keeps its directories.
func TestALostClusterIsTakenOverOnceItHasLeftNoFreshMark(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	f.class = f.NewClass("retaining", nil, retaining).Name
	p := f.provision("data", f.class)
	f.lose(p)
	entry := f.local(filepath.Join(wellknown.OwnersDirectory, p.path, wellknown.OwnerPrefix+p.volume.Name))
	text, err := os.ReadFile(entry)
	f.check(err)
	f.check(os.WriteFile(entry, bytes.ReplaceAll(text, []byte(f.ClusterUID), []byte("lost")), 0o600))

	lost := requests.Lost{Cluster: "lost"}
	if items, err := f.rebuild(lost, true); err == nil || !strings.Contains(err.Error(), "seems to live: it recorded an owner of") {
		t.Errorf("a living cluster: %v, %+v", err, items)
	}
	items, err := f.rebuild(requests.Lost{Cluster: f.ClusterUID}, true)
	f.check(err)
	f.expectStates("this cluster has nothing", items)
	old := time.Now().Add(-2 * requests.FreshMark)
	f.check(os.Chtimes(entry, old, old))
	items, err = f.rebuild(lost, true)
	f.check(err)
	f.expectStates("taken over", items, rebuild.Done)
	f.expectRebuilt(p)
	items, err = f.rebuild(lost, true)
	f.check(err)
	f.expectStates("a second run", items, rebuild.Exists)
}

// imported plays the plugin's command.
func (f *fixture) imported(policy corev1.PersistentVolumeReclaimPolicy, apply bool, wanted ...rebuild.Wanted) []rebuild.Item {
	f.Helper()
	table, err := f.Table(f.Context())
	f.check(err)
	r := f.runner()
	cluster, err := r.Cluster(f.Context(), rebuild.Cluster{UID: f.ClusterUID, Provisioner: f.Provisioner, Targets: table.Targets})
	f.check(err)
	var request requests.Directories
	for _, w := range wanted {
		request.Paths = append(request.Paths, w.Path)
	}
	found, ledger, err := r.Directories(f.Context(), f.fileSystem, request)
	f.check(err)
	points, err := f.EFS.ListAccessPoints(f.Context(), f.fileSystem)
	f.check(err)
	for _, point := range points {
		cluster.Points = append(cluster.Points, asListed(point))
	}
	items := rebuild.Import{Cluster: cluster, Choice: f.choice(policy), FileSystem: f.fileSystem}.Plan(wanted, found, ledger)
	if apply {
		f.check(r.Apply(f.Context(), items, f.ClusterUID, nil))
		f.check(r.AwaitBound(f.Context(), items, time.Minute))
	}
	return items
}

// TestDirectoriesBecomeBoundClaims and stay when these are deleted, unless their removal was asked for.
func TestDirectoriesBecomeBoundClaims(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	f.provision("first", f.class) // the file system has its root claim
	want := func(name string) rebuild.Wanted {
		return rebuild.Wanted{Namespace: f.Team, Claim: name, Path: "/old/" + name}
	}
	f.makeDirectory("/old/kept")
	f.makeDirectory("/old/removed")
	f.expectStates("a dry run", f.imported(corev1.PersistentVolumeReclaimRetain, false, want("kept"), want("missing")), rebuild.Planned, rebuild.Refused)
	if claims, err := f.claims(f.Team).List(t.Context(), metav1.ListOptions{}); err != nil || len(claims.Items) != 1 || len(f.owners()) != 1 {
		t.Errorf("a dry run changed something: %d claims, %v, %v", len(claims.Items), f.owners(), err)
	}
	f.expectStates("retained", f.imported(corev1.PersistentVolumeReclaimRetain, true, want("kept")), rebuild.Done)
	f.expectStates("removable", f.imported(corev1.PersistentVolumeReclaimDelete, true, want("removed")), rebuild.Done)
	f.expectStates("a second run", f.imported(corev1.PersistentVolumeReclaimRetain, true, want("kept")), rebuild.Exists)

	at := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: f.Team, Name: name} }
	kept, keptVolume := f.WaitForBound(&corev1.PersistentVolumeClaim{ObjectMeta: at("kept")})
	removed, removedVolume := f.WaitForBound(&corev1.PersistentVolumeClaim{ObjectMeta: at("removed")})
	f.setReclaimPolicy(keptVolume.Name, corev1.PersistentVolumeReclaimDelete)
	f.waitForFinalizer(keptVolume.Name)
	f.deleteClaims(kept, removed)
	f.waitForVolumeDeleted(keptVolume.Name)
	f.waitForVolumeDeleted(removedVolume.Name)
	f.expectNoTrace("/old/removed")
	f.expectFile("/old/kept")
	f.expectNoLedgerJobs()
}
