//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/loops"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

func (f *fixture) useWorkers() { f.linger = 10 * time.Second }

// runWithWorker has claims that come one after another, and go while another one comes.
func (f *fixture) runWithWorker() {
	one := f.createClaim("one")
	f.waitForBound(one)
	other := f.createClaim("other")
	f.waitForBound(other)
	f.deleteClaims(one)
	last := f.createClaim("last")
	f.waitForBound(last)
	f.WaitForVolumeDeleted(one)
	f.expectVolumes(other, last)
	f.deleteClaims(other, last)
	f.waitForCleanupAndSweep(one, other, last)
}

// TestWorkerServesClaimsOneAfterAnother: setups and cleanups, with one Job.
func TestWorkerServesClaimsOneAfterAnother(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.linger = time.Minute
	f.startManager(nil)
	var claims []*corev1.PersistentVolumeClaim
	for n := range 5 {
		claim := f.createClaim(fmt.Sprintf("claim-%d", n))
		f.waitForProvisioned(claim)
		claims = append(claims, claim)
	}
	f.deleteClaims(claims...)
	f.waitForCleanup(claims...)
	jobs := f.mountJobs()
	if len(jobs) != 1 {
		t.Fatalf("there are Jobs %q, want one", namesOf(jobs))
	}
	job := jobs[0]
	if setUp, cleanedUp := job.Labels[wellknown.LabelSetUp], job.Labels[wellknown.LabelCleanedUp]; setUp != "5" || cleanedUp != "5" {
		t.Errorf("Job %s is labelled with %s set up and %s cleaned up", job.Name, setUp, cleanedUp)
	}
	if first := job.Annotations[wellknown.AnnotationFirstClaim]; first != f.Team+"/claim-0" {
		t.Errorf("Job %s is for the claim %q", job.Name, first)
	}
	f.Eventually("the trash is swept while the worker waits", func(ctx context.Context) error {
		if sweeps := f.jobs(ctx, mountjobs.Sweep, f.fileSystem); len(sweeps) == 0 {
			return fmt.Errorf("no sweep")
		}
		return nil
	})
	f.waitForEmptyTrash()
}

// TestWorkerEndsWithItsLeader: the next leader's Job has the next claim.
func TestWorkerEndsWithItsLeader(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.linger = time.Hour
	first := f.startManager(nil)
	f.provision("one", f.class)
	first.halt()
	f.startManager(nil)
	f.provision("two", f.class)
	if jobs := f.mountJobs(); len(jobs) != 2 {
		t.Errorf("there are Jobs %q, want one of each leader", namesOf(jobs))
	}
	if runs := f.Kubelet.Runs(); len(runs) == 0 || !strings.Contains(runs[0].Log, "worker ended") || runs[0].ExitCode != 0 {
		t.Errorf("the first worker ended otherwise: %+v", runs)
	}
}

// TestWorkerThatCannotReachTheLeader: claims are served by one Job after another.
func TestWorkerThatCannotReachTheLeader(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.useWorkers()
	f.startManager(nil, func(o *loops.Options) { o.Workers.Host = "worker-channel.invalid" })
	f.provision("one", f.class)
	f.provision("two", f.class)
	if jobs := f.mountJobs(); len(jobs) != 2 {
		t.Errorf("there are Jobs %q, want one for each claim", namesOf(jobs))
	}
}

// TestBurstWithThreeLeaders: every claim gets its volume, whoever leads when.
func TestBurstWithThreeLeaders(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.useWorkers()
	m := f.startManager(nil)
	first := f.createClaim("first")
	f.waitForBound(first)
	claims := append(f.createClaims(60), first)
	for n := range 3 {
		f.Eventually("some claims are bound", func(ctx context.Context) error {
			found, err := f.claims(f.Team).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			bound := 0
			for _, claim := range found.Items {
				if claim.Status.Phase == corev1.ClaimBound {
					bound++
				}
			}
			if bound <= n*10+1 {
				return fmt.Errorf("%d are", bound)
			}
			return nil
		})
		m.halt()
		m = f.startManager(nil)
	}
	f.waitForBound(claims...)
	f.expectVolumes(claims...)
	f.deleteClaims(claims...)
	f.waitForCleanup(claims...)
}

// TestFailureOutlivesLaterBatches: a setup that was refused waits for its next try, whatever other operations
// the worker gets meanwhile.
func TestFailureOutlivesLaterBatches(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.linger = 5 * time.Second
	f.startManager(nil, func(o *loops.Options) { o.Backoff = time.Hour })
	f.provision("first", f.class)
	f.check(os.WriteFile(f.local(filepath.Join(f.Team, "blocked")), nil, 0o600))
	refused := f.createClaim("refused", withVolumeName("blocked"))
	f.waitForEvent(refused, wellknown.EventProvisioningFailed, "could not make the directory")
	for n := range 3 {
		f.syncAgain(fmt.Sprintf("later-%d", n), refused)
	}
	tries, log := 0, ""
	f.Eventually("the worker ends", func(context.Context) error { // on a slow machine, one that only made the first has ended before
		log = ""
		for _, run := range f.Kubelet.Runs() {
			log += run.Log
		}
		tries = strings.Count(log, "action=failed") + strings.Count(log, "action=refused")
		if tries == 0 {
			return fmt.Errorf("it runs")
		}
		return nil
	})
	if tries != 1 {
		t.Errorf("the setup was tried again:\n%s", log)
	}
}
