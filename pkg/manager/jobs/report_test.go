package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	expiring "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/kube/events"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/manager/observe"
	"gnuthought.com/efs-stunnel/pkg/manager/workers"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

const queuedClaim = types.UID("22222222-0000-0000-0000-000000000000")

// reporter is a loop that can do no more than write events about one claim.
func reporter(t *testing.T) (*Controller, *record.FakeRecorder) {
	t.Helper()
	store, err := caches.New(fake.NewClientset(), nil, "efs-stunnel")
	if err != nil {
		t.Fatal(err)
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", UID: queuedClaim}}
	if err := store.Claims.GetStore().Add(claim); err != nil {
		t.Fatal(err)
	}
	recorder := record.NewFakeRecorder(10)
	return &Controller{
		options:  Options{Jobs: mountjobs.Settings{Namespace: "efs-stunnel"}, Workers: &workers.Channel{}},
		gatherer: &observe.Gatherer{Caches: store}, events: events.NewReporter(recorder), notCreated: noneRefused(),
	}, recorder
}

func noneRefused() *expiring.Expiring { return expiring.NewExpiring() }

func written(events *record.FakeRecorder) (all []string) {
	for len(events.Events) > 0 {
		all = append(all, <-events.Events)
	}
	return all
}

// waits is what the claim waits for.
func waits(since, due time.Time) decide.Pending {
	w := wants("v1", since, due)
	w.Operation.ClaimUID = string(queuedClaim)
	return w
}

func cleanupOf(w decide.Pending) decide.Pending {
	w.Operation.Kind = operations.Cleanup
	return w
}

// TestClaimBehindARunningJobIsReportedOnce with the Job that it waits for, and again when that is another one.
func TestClaimBehindARunningJobIsReportedOnce(t *testing.T) {
	long := mounted(7, runs)
	young := mounted(7, runs)
	young.job.CreationTimestamp = metav1.NewTime(ago(queueReportDelay - time.Second))
	for name, c := range map[string]struct {
		job      mountJob
		wanted   decide.Pending
		reported bool
		again    time.Duration
	}{
		"waits for long":      {long, waits(ago(time.Minute), time.Time{}), true, 0},
		"has just come":       {long, waits(ago(queueReportDelay-time.Second), time.Time{}), false, time.Second},
		"the Job is new":      {young, waits(ago(time.Minute), time.Time{}), false, time.Second},
		"failed, tried later": {long, waits(ago(time.Minute), now.Add(time.Minute)), false, 0},
		"failed, tried now":   {long, waits(ago(time.Minute), ago(time.Second)), true, 0},
		"a cleanup":           {long, cleanupOf(waits(ago(time.Minute), time.Time{})), false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			loop, events := reporter(t)
			w := stateWith([]mountJob{c.job}, c.wanted)
			wantAgain := cmp.Or(c.again, time.Hour) // when the Job must have ended
			for range 3 {
				if again, err := loop.apply(t.Context(), w, planFor(w)); again != wantAgain+catchUp || err != nil {
					t.Errorf("syncs again after %s, want %s; error %v", again, wantAgain+catchUp, err)
				}
			}
			got := written(events)
			if c.reported && (len(got) != 1 || !strings.HasPrefix(got[0], "Normal Provisioning ") || !strings.Contains(got[0], "efs-mount-"+fileSystem+"-00007 has ended") ||
				!strings.Contains(got[0], "kubectl -n efs-stunnel describe job")) || !c.reported && len(got) > 0 {
				t.Errorf("reported %q", got)
			}
			w.mounts[0] = mounted(8, runs)
			if _, err := loop.apply(t.Context(), w, planFor(w)); err != nil {
				t.Fatal(err)
			}
			if got := written(events); c.reported && len(got) != 1 {
				t.Errorf("of the next Job, reported %q", got)
			}
		})
	}
}

// TestClaimGivenToAWorkerIsReported once that has lasted; the first batch was when its Job was created.
func TestClaimGivenToAWorkerIsReported(t *testing.T) {
	long := ago(queueReportDelay)
	for name, c := range map[string]struct {
		run      mountjobs.BatchRun
		kind     operations.Kind
		reported bool
		again    time.Duration
	}{
		"takes long":      {mountjobs.BatchRun{Number: 2, Running: true, Began: long}, operations.Setup, true, 0},
		"has just begun":  {mountjobs.BatchRun{Number: 2, Running: true, Began: long.Add(time.Second)}, operations.Setup, false, time.Second},
		"is done":         {mountjobs.BatchRun{Number: 2, Began: long}, operations.Setup, false, 0},
		"the first batch": {mountjobs.BatchRun{Number: 1, Running: true, Began: long}, operations.Setup, false, 0},
		"a cleanup":       {mountjobs.BatchRun{Number: 2, Running: true, Began: long}, operations.Cleanup, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			loop, events := reporter(t)
			given := waits(ago(time.Minute), time.Time{}).Operation
			given.Kind, c.run.Count = c.kind, 1
			job := mounted(7, runs)
			job.outcome.Operations, job.outcome.Runs = []operations.Operation{given}, []mountjobs.BatchRun{c.run}
			s := stateWith([]mountJob{job})
			wantAgain := cmp.Or(c.again, time.Hour) // when the Job must have ended
			for range 2 {
				if again, err := loop.apply(t.Context(), s, planFor(s)); again != wantAgain+catchUp || err != nil {
					t.Errorf("syncs again after %s, want %s; error %v", again, wantAgain+catchUp, err)
				}
			}
			got := written(events)
			if c.reported && (len(got) != 1 || got[0] != "Normal Provisioning Job efs-mount-"+fileSystem+"-00007 makes directory "+given.Path) || !c.reported && len(got) > 0 {
				t.Errorf("reported %q", got)
			}
		})
	}
}

// TestJobThatCannotBeCreatedIsReported where the apiserver refuses it; what passes by itself is not.
func TestJobThatCannotBeCreatedIsReported(t *testing.T) {
	quota := apierrors.NewForbidden(schema.GroupResource{Group: "batch", Resource: "jobs"}, "efs-mount-1", errors.New("exceeded quota: small"))
	for name, c := range map[string]struct {
		err   error
		words []string // of the event; none for no event
	}{
		"refused":                   {fmt.Errorf("wrapped: %w", quota), []string{"Warning ProvisioningFailed no mount Job can begin: creating it failed", "exceeded quota: small", "in namespace efs-stunnel"}},
		"cannot be built":           {errors.New("no image"), []string{"no image"}},
		"apiserver does not answer": {fmt.Errorf("wrapped: %w", &url.Error{Op: "Post", Err: errors.New("connection refused")}), nil},
		"manager ends":              {fmt.Errorf("wrapped: %w", context.Canceled), nil},
	} {
		t.Run(name, func(t *testing.T) {
			loop, events := reporter(t)
			for range 3 {
				loop.reportNotCreated([]decide.Pending{waits(now, time.Time{})}, "creating it", c.err)
			}
			got := written(events)
			if (len(got) == 1) != (len(c.words) > 0) {
				t.Fatalf("reported %q", got)
			}
			for _, word := range c.words {
				if !strings.Contains(got[0], word) {
					t.Errorf("reported %q, want %q", got, word)
				}
			}
		})
	}
}

// TestReportsAreDelayed: what passes within a moment is not reported, and what lasts is, as soon as it
// has lasted.
func TestReportsAreDelayed(t *testing.T) {
	old := wants("v1", ago(time.Hour), time.Time{})
	stuck := func(m *mountJob) { m.pods[0].Status.Conditions[0].Message = "0/3 nodes are available" }
	for name, c := range map[string]struct {
		after time.Duration
		state func(lasted time.Duration) state
	}{
		"a Job does not start": {startReportDelay, func(lasted time.Duration) state {
			return stateWith([]mountJob{mounted(1, runs, uncounted, unscheduled, stuck, made(lasted))}, old)
		}},
		"the root claim is not ready": {startReportDelay, func(lasted time.Duration) state {
			s := stateWith(nil, wants("v1", ago(lasted), time.Time{}))
			s.NotReady = "it is not bound"
			return s
		}},
		"the root claim was not ready before": {startReportDelay, func(lasted time.Duration) state {
			s := stateWith(nil, old)
			s.NotReady, s.notReadySince = "it is missing", ago(lasted)
			return s
		}},
		"a Job of others runs": {queueReportDelay, func(lasted time.Duration) state {
			return stateWith([]mountJob{mounted(1, runs, made(lasted))}, old)
		}},
		"an operation is new": {queueReportDelay, func(lasted time.Duration) state {
			return stateWith([]mountJob{mounted(1, runs, made(time.Hour))}, wants("v1", ago(lasted), time.Time{}))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			reports := func(p plan) int { return len(changesOf[report](p)) }
			if p := planFor(c.state(c.after - time.Second)); reports(p) > 0 || !p.Again.Equal(now.Add(time.Second)) {
				t.Errorf("a second too early: got %+v, want the next plan in a second", p)
			}
			if p := planFor(c.state(c.after)); reports(p) != 1 {
				t.Errorf("got %+v, want one report", p)
			}
		})
	}
}
