//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/manager/loops"
	"gnuthought.com/efs-stunnel/test/integration/kubelet"
)

// expectedEvent is a row of "The life of a claim" in docs/reference/claim-states.md: the event that describes
// what a claim waits for, its cause and the next step. Some events are the cluster's own.
type expectedEvent struct {
	claim  *corev1.PersistentVolumeClaim
	reason string
	texts  []string
}

// quickRetries repeats failed setups at once, and gives up after two.
func quickRetries(options *loops.Options) {
	options.Backoff, options.Threshold = 100*time.Millisecond, 2
}

// TestEventsOfAClaimSayWhatItWaitsFor: in each row, without the manager's log.
func TestEventsOfAClaimSayWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t, quickRetries)
	held := make(chan struct{})
	rows := f.heldRows(held) // first, so that no other pod has their behaviors
	f.addClusterRows(rows)
	f.addRefusedRows(rows)
	f.addProvisionedRows(rows)
	for name, row := range rows {
		f.Eventually("the events show: "+name, func(ctx context.Context) error { return f.hasEvent(ctx, row) })
	}
	close(held)
	for _, name := range []string{"waits behind a Job", "its Job runs", "its pod cannot start"} {
		f.waitForProvisioned(rows[name].claim)
	}
}

func (f *fixture) hasEvent(ctx context.Context, row expectedEvent) error {
	events := f.eventsOf(ctx, row.claim)
	matches := func(event corev1.Event) bool {
		return event.Reason == row.reason && containsAll(event.Message, row.texts)
	}
	if !slices.ContainsFunc(events, matches) {
		return fmt.Errorf("no event %s with %q: %q", row.reason, row.texts, messagesOf(events))
	}
	return nil
}

// classOn creates a class whose claims are on one file system.
func (f *fixture) classOn(name, fileSystem string, edits ...func(*storagev1.StorageClass)) string {
	f.Helper()
	return f.NewClass(name, map[string]string{"default_file_system_id": fileSystem}, edits...).Name
}

// heldRows have Jobs that do not end before held is closed.
func (f *fixture) heldRows(held chan struct{}) map[string]expectedEvent {
	f.Helper()
	slow, stuck := f.NewFileSystem(), f.NewFileSystem()
	g := &gate{reached: make(chan struct{}), open: held}
	f.Kubelet.QueueBehavior(g.behavior())
	class := f.classOn("slow", slow)
	runs := f.NewClaim("runs", class)
	f.waitForGate(g)
	f.Kubelet.QueueBehavior(kubelet.Behavior{FailedMount: "mount.nfs: Connection refused for 127.0.0.1:/ on /mnt", Until: held})
	unmounted := f.NewClaim("unmounted", f.classOn("stuck", stuck))
	f.waitForEvent(unmounted, wellknown.EventProvisioningFailed, "Connection refused")
	job := "efs-mount-" + slow + "-00001"
	return map[string]expectedEvent{
		"its Job runs": {runs, wellknown.EventProvisioning, []string{"Job " + job + " makes directory", ownDirectory(runs)}},
		"waits behind a Job": {f.NewClaim("behind", class), wellknown.EventProvisioning,
			[]string{"the next mount Job of file system " + slow, "when Job " + job + " has ended", "kubectl -n " + f.Namespace + " describe job " + job}},
		"its pod cannot start": {unmounted, wellknown.EventProvisioningFailed,
			[]string{"Job efs-mount-" + stuck + "-00001: mount refused on 127.0.0.1:", "is the efs-stunnel pod on node"}},
	}
}

// addClusterRows are about claims for which the binder has not asked the provisioner.
func (f *fixture) addClusterRows(rows map[string]expectedEvent) {
	f.Helper()
	rows["waits for a pod"] = expectedEvent{f.NewClaim("unused", f.NewClass("later", nil, waitingForConsumer).Name), "WaitForFirstConsumer", []string{"first consumer"}}
	rows["has no class"] = expectedEvent{f.NewClaim("classless", f.Named("missing")), wellknown.EventProvisioningFailed, []string{f.Named("missing"), "not found"}}
}

// addRefusedRows are about claims that need a change by a person.
func (f *fixture) addRefusedRows(rows map[string]expectedEvent) {
	f.Helper()
	failed := func(row, class string, texts ...string) {
		rows[row] = expectedEvent{f.NewClaim(f.Named("refused")+fmt.Sprint(len(rows)), class), wellknown.EventProvisioningFailed, texts}
	}
	failed("is refused", f.NewClass("bad", map[string]string{"directory_perms": "rwx"}).Name, "directory_perms", "rwx", "octal")
	failed("its file system is not known", f.classOn("unknown", "fs-0"), "waiting: file system fs-0 is not found yet", "is its ID right")
	empty := f.NewFileSystem(func(fs *efs.FileSystem) { fs.MountTargets = nil })
	failed("its file system is not usable", f.classOn("empty", empty), "waiting: file system "+empty+" is not usable: ", "mount target")

	far := f.NewFileSystem(oneZoneB)
	failed("its node is too far", f.classOn("far", far, waitingForConsumer), "without a mount target in", "asking the scheduler for another node")
	f.selectNode(rows["its node is too far"].claim, f.Nodes[0])

	f.makeDirectory("/" + f.Team + "/existing")
	strict := f.NewClass("strict", map[string]string{"default_file_system_id": f.fileSystem, "adopt_existing": "false", "path_pattern": "${.PVC.namespace}/existing"}).Name
	failed("its setup failed", strict, "Job efs-mount-"+f.fileSystem, "could not make the directory", "has content and no owner", "attempt 1; next at")
	failed("it is given up", strict, "gave up after 2 failed setups", "until the claim, its class or the file systems change", "has content and no owner")
}

// addProvisionedRows are about a claim with a volume.
func (f *fixture) addProvisionedRows(rows map[string]expectedEvent) {
	f.Helper()
	p := f.provision("provisioned", f.NewClass("growing", map[string]string{"default_file_system_id": f.fileSystem}, expandable).Name)
	rows["has its volume"] = expectedEvent{p.claim, wellknown.EventProvisioningSucceeded, []string{"created volume " + p.volume.Name, p.path, f.fileSystem}}
	f.requestSize(p.claim, "3Gi")
	rows["has grown"] = expectedEvent{p.claim, wellknown.EventVolumeResizeSuccessful, []string{p.volume.Name, "3Gi"}}
}
