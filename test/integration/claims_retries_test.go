//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/controller/loops"
	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// hasty has failures follow each other quickly, and few of them.
func hasty(options *loops.Options) {
	options.Backoff, options.Threshold = 100*time.Millisecond, 2
}

// TestClaimIsGivenUp has a claim fail for good until its world changes: each time it is tried as
// often as at first.
func TestClaimIsGivenUp(t *testing.T) {
	s := newClaimsWorld(t, hasty)
	strict := s.NewClass("strict", map[string]string{
		"default_file_system_id": s.fileSystem, "adopt_existing": "false",
		"path_pattern": "${.PVC.annotations.example.com/dir}/there",
	})
	for _, there := range []string{"/a/there", "/b/there"} {
		s.makeDirectory(there, 0o755)
		s.write(there, "data")
	}
	claim := s.NewClaim("data", strict.Name, withAnnotations(map[string]string{"example.com/dir": "a"}))
	mark := s.awaitGivenUp(claim, "")
	s.awaitRejected(claim, "gave up after 2 failed setups", "until the claim, its class or the file systems change", "/a/there", "has content and no owner")
	tries := 2
	for name, change := range map[string]func(){
		"label":       func() { s.label(claim, map[string]any{"app": "shop"}) },
		"path":        func() { s.annotate(claim, map[string]any{"example.com/dir": "b"}) },
		"class":       func() { s.replaceClass(strict) },
		"file system": func() { s.NewFileSystem() },
	} {
		s.pass(fmt.Sprintf("meanwhile-%d", tries), claim)
		s.wantTries(claim, tries)
		change()
		mark = s.awaitGivenUp(claim, mark)
		if tries += 2; s.operations(claim, operations.Setup) != tries {
			t.Errorf("the change of the %s had no two tries", name)
		}
	}
	if err := os.RemoveAll(s.at("/b/there")); err != nil {
		t.Fatal(err)
	}
	s.pass("meanwhile", claim)
	s.wantTries(claim, tries) // nobody has told the manager
	s.label(claim, map[string]any{"app": "office"})
	s.await(claim)
	s.wantNotRejected(claim)
	s.wantTries(claim, tries+1)
}

// awaitGivenUp waits for another mark than the one before.
func (s *claimsWorld) awaitGivenUp(claim *corev1.PersistentVolumeClaim, before string) (mark string) {
	s.Helper()
	s.Eventually("claim "+claim.Name+" is given up", func(ctx context.Context) error {
		found, err := s.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if mark = found.Annotations[wellknown.AnnotationGivenUp]; mark == "" || mark == before {
			return fmt.Errorf("its mark is %q, as before", mark)
		}
		return nil
	})
	return mark
}

// wantTries counts the setups of a claim.
func (s *claimsWorld) wantTries(claim *corev1.PersistentVolumeClaim, times int) {
	s.Helper()
	if tries := s.operations(claim, operations.Setup); tries != times {
		s.Errorf("claim %s was tried %d times, want %d\n%s", claim.Name, tries, times, s.Story())
	}
}

// TestClaimFailsOnce has a failure told with its number and the time of the next attempt, and
// then forgotten.
func TestClaimFailsOnce(t *testing.T) {
	s := newClaimsWorld(t)
	s.AwaitRoot(s.fileSystem)
	strict := s.NewClass("strict", map[string]string{"adopt_existing": "false"}).Name
	there := "/" + s.Team + "/there"
	s.makeDirectory(there, 0o755)
	s.write(there, "data")
	failing, fine := s.NewClaim("failing", strict, called("there")), s.NewClaim("fine", strict)
	s.awaitTold(failing, wellknown.EventProvisioningFailed, "Job efs-mount-"+s.fileSystem, "has content and no owner", "attempt 1; next at")
	if err := os.RemoveAll(s.at(there)); err != nil {
		t.Fatal(err)
	}
	s.await(fine)
	s.await(failing)
	s.wantNotRejected(failing)
	s.wantTold(fine, wellknown.EventProvisioningFailed, 0)
	if waits := s.waits(failing); waits[0] < time.Second {
		t.Errorf("the attempts began %s after each other, want a second at least", waits)
	}
}

// waits are the times between the Jobs of a claim.
func (s *claimsWorld) waits(claim *corev1.PersistentVolumeClaim) []time.Duration {
	s.Helper()
	jobs, err := s.Client.BatchV1().Jobs(s.Namespace).List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	var began []time.Time
	for _, job := range jobs.Items {
		if hasWords(job.Annotations[wellknown.AnnotationOperations], []string{string(claim.UID)}) {
			began = append(began, job.CreationTimestamp.Time)
		}
	}
	slices.SortFunc(began, time.Time.Compare)
	var waits []time.Duration
	for i := range began[1:] {
		waits = append(waits, began[i+1].Sub(began[i]))
	}
	return waits
}

// TestSuccessBlamesNoNode has one mount Job after another do well. Each may run anywhere: a node
// that is left out for nothing could be the only one that is left.
func TestSuccessBlamesNoNode(t *testing.T) {
	s := newClaimsWorld(t)
	jobs := func(ctx context.Context) []batchv1.Job {
		found, err := s.Client.BatchV1().Jobs(s.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return found.Items
	}
	for _, name := range []string{"first", "second", "third"} {
		s.bound(name, s.class)
		s.AwaitJobsUsed()
		s.Eventually("the cluster has counted all pods", func(ctx context.Context) error {
			for _, job := range jobs(ctx) {
				if job.Status.Succeeded == 0 {
					return fmt.Errorf("not that of %s", job.Name)
				}
			}
			return nil
		})
	}
	for _, job := range jobs(t.Context()) {
		if affinity := job.Spec.Template.Spec.Affinity.NodeAffinity; affinity != nil {
			t.Errorf("%s leaves out nodes: %v", job.Name, affinity)
		}
	}
}
