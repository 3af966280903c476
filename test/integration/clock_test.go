//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/clock"
	"gnuthought.com/efs-stunnel/pkg/manager/loops"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/test/integration/kubelet"
)

// TestManagerWithAWrongClockRetriesAsUsual: it provisions, retries, gives up, deletes and sweeps by the
// apiserver's clock.
func TestManagerWithAWrongClockRetriesAsUsual(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{-time.Hour, 72 * time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			apiClock := clock.New("test", func() time.Time { return time.Now().Add(ahead) }, slog.New(slog.NewTextHandler(f.Output(), nil)))
			f.Config = rest.CopyConfig(f.Config)
			f.Config.Wrap(apiClock.Wrap)
			f.startManager(nil, quickRetries, func(options *loops.Options) { options.Now = apiClock.Now })

			f.Kubelet.QueueBehavior(kubelet.Behavior{Ending: kubelet.Killed}) // attempt 1 is lost, attempt 2 succeeds
			f.waitForBound(f.createClaim("killed"))
			f.makeDirectory("/" + f.Team + "/existing")
			strict := f.NewClass("strict", map[string]string{"adopt_existing": "false"}).Name
			failing := f.NewClaim("failing", strict, withVolumeName("existing"))
			f.Eventually("the claim is given up", func(ctx context.Context) error {
				found, err := f.claims(f.Team).Get(ctx, failing.Name, metav1.GetOptions{})
				if err == nil && found.Annotations[wellknown.AnnotationGivenUp] == "" {
					err = fmt.Errorf("it is not after %d attempts", f.setupsOf(ctx, string(failing.UID)))
				}
				return err
			})
			if attempts := f.setupsOf(t.Context(), string(failing.UID)); attempts != 2 {
				t.Errorf("the claim was given up after %d attempts, want 2", attempts)
			}
			data := f.createClaim("data")
			path := f.waitForBound(data).Spec.NFS.Path
			f.deleteClaims(data)
			f.WaitForVolumeDeleted(data)
			f.expectNoTrace(path)
			f.WaitForJobsReleased() // once the trash is swept

			if got := len(f.mountJobs()); got != 6 {
				t.Errorf("%d mount Jobs, want 6\n%s", got, f.Dump())
			}
		})
	}
}

// setupsOf counts the mount Jobs with a setup for the claim.
func (f *fixture) setupsOf(ctx context.Context, uid string) (count int) {
	f.Helper()
	for _, job := range f.jobs(ctx, mountjobs.Mount, f.fileSystem) {
		if slices.ContainsFunc(f.operationsOf(job), func(o operations.Operation) bool { return o.ClaimUID == uid && o.Kind == operations.Setup }) {
			count++
		}
	}
	return count
}
