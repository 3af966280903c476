//go:build integration

package integration_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/plugin/ledger"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// runner returns the plugin's runner. The simulated kubelet serves no logs, so they are taken from its runs.
func (f *fixture) runner() ledger.Runner {
	return ledger.Runner{
		Client: f.Client, Settings: mountjobs.Settings{Namespace: f.Namespace, Image: "image"},
		Aliases: func(string) []string { return nil },
		Used:    func(context.Context, string) (bool, error) { return false, nil },
		Waiting: func(fileSystem, message string) { f.Logf("%s: %s", fileSystem, message) },
		Logs: func(_ context.Context, pod string) (io.ReadCloser, error) {
			log := ""
			f.Eventually("pod "+pod+" has run", func(context.Context) error { //nolint:contextcheck // it has that of the test
				for _, run := range f.Kubelet.Runs() {
					if run.Pod == pod {
						log = run.Log
						return nil
					}
				}
				return errors.New("it has not")
			})
			return io.NopCloser(strings.NewReader(log)), nil
		},
	}
}

// TestTrashIsRestoredAndEmptiedByAnAdministrator plays the plugin of kubectl beside a manager.
func TestTrashIsRestoredAndEmptiedByAnAdministrator(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	class := f.NewClass("keeping", map[string]string{"keep_deleted": "forever"})
	f.class = class.Name
	claim := f.createClaim("data")
	path := f.waitForBound(claim).Spec.NFS.Path
	f.writeFile(path)
	f.deleteClaims(claim)
	f.WaitForVolumeDeleted(claim)

	r := f.runner()
	items, err := r.ListTrash(t.Context(), []string{f.fileSystem})
	f.check(err)
	if len(items) != 1 || items[0].ClaimUID != string(claim.UID) || items[0].Cluster != f.ClusterUID || items[0].Path != path || !items[0].Forever {
		t.Fatalf("%+v", items)
	}
	namespace, err := f.Client.CoreV1().Namespaces().Get(t.Context(), f.Team, metav1.GetOptions{})
	f.check(err)
	restore := ledger.Restore{
		Cluster: f.ClusterUID, Provisioner: f.Provisioner, Namespace: namespace, Claim: "data", Name: "back",
		Size: resource.MustParse("1Gi"), AccessMode: corev1.ReadWriteMany,
	}
	item, err := restore.Find(items)
	f.check(err)
	object, _, err := restore.Object(item, class)
	f.check(err)
	back, err := f.claims(f.Team).Create(t.Context(), object, metav1.CreateOptions{})
	f.check(err)
	f.expectFile(f.waitForBound(back).Spec.NFS.Path)

	f.deleteClaims(back)
	f.WaitForVolumeDeleted(back)
	items, err = r.ListTrash(t.Context(), []string{f.fileSystem})
	f.check(err)
	choice := ledger.TrashChoice{Cluster: f.ClusterUID, Namespace: f.Team}
	chosen, err := choice.Select(items)
	f.check(err)
	answers, err := r.Ask(t.Context(), choice.Removal(chosen))
	f.check(err)
	if end := answers[f.fileSystem].End; end.Swept == nil || end.Swept.Volumes != 1 {
		t.Errorf("%+v", end)
	}
	f.expectNoTrace(f.inTrash(volumes.VolumeName(back.UID)))
	f.expectNoLedgerJobs()
	f.waitForBound(f.createClaim("next")) // the manager's own Jobs go on
}

// TestOwnersAreListedAndReleasedByAnAdministrator: a claim that is bound is live, one that was removed by
// force is gone, and only those of the cluster that is named are released.
func TestOwnersAreListedAndReleasedByAnAdministrator(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	f.class = f.NewClass("retaining", nil, retaining).Name
	live, gone := f.createClaim("live"), f.createClaim("gone")
	volume := f.waitForBound(live, gone)
	f.deleteClaims(gone)
	f.waitForClaimDeleted(gone)
	f.check(f.volumes().Delete(t.Context(), volume.Name, metav1.DeleteOptions{}))
	f.WaitForVolumeDeleted(gone)
	foreign := filepath.Join(f.Folder(f.fileSystem), wellknown.OwnersDirectory, "elsewhere", "@pvc-1")
	f.check(os.MkdirAll(filepath.Dir(foreign), 0o700))
	f.check(os.WriteFile(foreign, []byte(`{"cluster":"c2","namespace":"team","claim":"data","claimUID":"u1"}`), 0o600))

	r := f.runner()
	items, err := r.ListOwners(t.Context(), []string{f.fileSystem}, nil)
	f.check(err)
	volumes, err := f.volumes().List(t.Context(), metav1.ListOptions{})
	f.check(err)
	objects := ledger.Objects{Cluster: f.ClusterUID, Complete: true}
	for i := range volumes.Items {
		objects.Volumes = append(objects.Volumes, &volumes.Items[i])
	}
	objects.SetStates(items)
	states := map[string]ledger.OwnerState{}
	for _, item := range items {
		states[item.Claim] = item.State
	}
	want := map[string]ledger.OwnerState{"live": ledger.Live, "gone": ledger.Gone, "data": ledger.Elsewhere}
	if !maps.Equal(states, want) {
		t.Errorf("%v, want %v", states, want)
	}
	if _, err := r.ListOwners(t.Context(), []string{f.fileSystem}, &requests.Release{Cluster: "c2"}); err == nil || !strings.Contains(err.Error(), "seems to live") {
		t.Errorf("a fresh mark: %v", err)
	}
	released, err := r.ListOwners(t.Context(), []string{f.fileSystem}, &requests.Release{Cluster: "c2", Force: true})
	f.check(err)
	if _, err := os.Stat(foreign); len(released) != 1 || !released[0].Released || err == nil {
		t.Errorf("%+v, %v", released, err)
	}
	f.expectNoLedgerJobs()
}

func (f *fixture) expectNoLedgerJobs() {
	f.Helper()
	jobs, err := f.Client.BatchV1().Jobs(f.Namespace).List(f.Context(), metav1.ListOptions{})
	f.check(err)
	for _, job := range jobs.Items {
		if strings.HasPrefix(job.Name, wellknown.LedgerJobPrefix) && job.DeletionTimestamp == nil {
			f.Errorf("Job %s is left", job.Name)
		}
	}
}
