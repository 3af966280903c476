//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
	"gnuthought.com/efs-stunnel/test/integration/kubelet"
)

// described is a row of "The life of a claim" in docs/architecture.md: what a claim meets, and what
// describing it shows then, the cause and the next step. The cluster says some of it itself.
type described struct {
	claim  *corev1.PersistentVolumeClaim
	reason string
	words  []string
}

// TestDescribeSaysWhatAClaimWaitsFor in each row, without a look into the manager's log.
func TestDescribeSaysWhatAClaimWaitsFor(t *testing.T) {
	s := newClaimsWorld(t, hasty)
	held := make(chan struct{})
	rows := s.heldRows(held) // first, so that no other pod has their fates
	s.addClusterRows(rows)
	s.addRefusedRows(rows)
	s.addServedRows(rows)
	for name, row := range rows {
		s.Eventually("describe shows: "+name, func(ctx context.Context) error { return s.describes(ctx, row) })
	}
	close(held)
	for _, name := range []string{"waits behind a Job", "its Job runs", "its pod cannot start"} {
		s.await(rows[name].claim)
	}
}

// describes compares the events that describing a claim shows.
func (s *claimsWorld) describes(ctx context.Context, row described) error {
	list, err := s.Client.CoreV1().Events(row.claim.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", string(row.claim.UID)).String(),
	})
	if err != nil {
		return err
	}
	has := func(event corev1.Event) bool { return event.Reason == row.reason && hasWords(event.Message, row.words) }
	if !slices.ContainsFunc(list.Items, has) {
		return fmt.Errorf("no event %s with %q: %q", row.reason, row.words, messages(list.Items))
	}
	return nil
}

// onto is a class whose claims are on one file system.
func (s *claimsWorld) onto(name, fileSystem string, edits ...func(*storagev1.StorageClass)) string {
	s.Helper()
	return s.NewClass(name, map[string]string{"default_file_system_id": fileSystem}, edits...).Name
}

// heldRows have Jobs that come to no end before held is closed.
func (s *claimsWorld) heldRows(held chan struct{}) map[string]described {
	s.Helper()
	slow, stuck := s.NewFileSystem(), s.NewFileSystem()
	started := make(chan struct{})
	s.Kubelet.PlayNext(kubelet.Fate{Before: func(ctx context.Context, _ kubelet.Run) {
		close(started)
		select {
		case <-held:
		case <-ctx.Done():
		}
	}})
	class := s.onto("slow", slow)
	runs := s.NewClaim("runs", class)
	select {
	case <-started:
	case <-s.Context().Done():
		s.Fatalf("no Job has started\n%s", s.Story())
	}
	s.Kubelet.PlayNext(kubelet.Fate{FailedMount: "mount.nfs: Connection refused for 127.0.0.1:/ on /mnt", Until: held})
	unmounted := s.NewClaim("unmounted", s.onto("stuck", stuck))
	s.awaitTold(unmounted, wellknown.EventProvisioningFailed, "Connection refused")
	job := "efs-mount-" + slow + "-00001"
	return map[string]described{
		"its Job runs": {runs, wellknown.EventProvisioning, []string{"Job " + job + " makes directory", ownDirectory(runs)}},
		"waits behind a Job": {s.NewClaim("behind", class), wellknown.EventProvisioning,
			[]string{"the next mount Job of file system " + slow, "when Job " + job + " has ended", "kubectl -n " + s.Namespace + " describe job " + job}},
		"its pod cannot start": {unmounted, wellknown.EventProvisioningFailed,
			[]string{"Job efs-mount-" + stuck + "-00001: mount refused on 127.0.0.1:", "is the efs-stunnel pod on node"}},
	}
}

// addClusterRows are the claims that the cluster has not asked for.
func (s *claimsWorld) addClusterRows(rows map[string]described) {
	s.Helper()
	rows["waits for a pod"] = described{s.NewClaim("unused", s.NewClass("later", nil, waitingForConsumers).Name), "WaitForFirstConsumer", []string{"first consumer"}}
	rows["has no class"] = described{s.NewClaim("classless", s.Named("to-come")), wellknown.EventProvisioningFailed, []string{s.Named("to-come"), "not found"}}
}

// addRefusedRows are the claims that wait for somebody.
func (s *claimsWorld) addRefusedRows(rows map[string]described) {
	s.Helper()
	failed := func(row, class string, words ...string) {
		rows[row] = described{s.NewClaim(s.Named("refused")+fmt.Sprint(len(rows)), class), wellknown.EventProvisioningFailed, words}
	}
	failed("is refused", s.NewClass("bad", map[string]string{"directory_perms": "rwx"}).Name, "directory_perms", "rwx", "octal")
	failed("its file system is not known", s.onto("unknown", "fs-0"), "waiting: file system fs-0 is not found yet", "is its ID right")
	empty := s.NewFileSystem(func(fs *efs.FileSystem) { fs.MountTargets = nil })
	failed("its file system is not usable", s.onto("empty", empty), "waiting: file system "+empty+" is not usable: ", "mount target")

	far := s.NewFileSystem(oneZoneB)
	failed("its node is too far", s.onto("far", far, waitingForConsumers), "without a mount target in", "asking the scheduler for another node")
	s.annotate(rows["its node is too far"].claim, onNode(s.Nodes[0]))

	there := "/" + s.Team + "/there"
	s.makeDirectory(there, 0o755)
	s.write(there, "data")
	strict := s.NewClass("strict", map[string]string{"default_file_system_id": s.fileSystem, "adopt_existing": "false", "path_pattern": "${.PVC.namespace}/there"}).Name
	failed("its setup failed", strict, "Job efs-mount-"+s.fileSystem, "could not make the directory", "has content and no owner", "attempt 1; next at")
	failed("it is given up", strict, "gave up after 2 failed setups", "until the claim, its class or the file systems change", "has content and no owner")
}

// addServedRows are the claims that have a volume.
func (s *claimsWorld) addServedRows(rows map[string]described) {
	s.Helper()
	v := s.bound("served", s.NewClass("growing", map[string]string{"default_file_system_id": s.fileSystem}, expandable).Name)
	rows["has its volume"] = described{v.claim, wellknown.EventProvisioningSucceeded, []string{"created volume " + v.object.Name, v.path, s.fileSystem}}
	s.request(v.claim, "3Gi")
	rows["has grown"] = described{v.claim, wellknown.EventVolumeResizeSuccessful, []string{v.object.Name, "3Gi"}}
}
