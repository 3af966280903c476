//go:build integration

package integration_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

func (f *fixture) waitForUsage(claim *corev1.PersistentVolumeClaim, least int64) (usage mountjobs.UsageRecord) {
	f.Helper()
	f.Eventually(fmt.Sprintf("claim %s has been counted with %d bytes or more", claim.Name, least), func(context.Context) error {
		var ok bool
		usage, ok = mountjobs.ParseUsage(f.getClaim(claim).Annotations[wellknown.AnnotationUsage]) //nolint:contextcheck // getClaim has that of the test
		if !ok || usage.Bytes < least {
			return fmt.Errorf("it has %+v", usage)
		}
		return nil
	})
	return usage
}

// TestRequestedSurveyCountsVolumes: the survey's results take the way of a pod's log, through the apiserver and
// the kubelet. A volume over its claim's request is reported once, also by the next survey.
func TestRequestedSurveyCountsVolumes(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	small, large := f.createClaim("small"), f.createClaim("large", func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("64Ki")
	})
	f.waitForBound(small)
	path := f.waitForBound(large).Spec.NFS.Path
	file, err := os.Create(filepath.Join(f.local(path), "file"))
	f.check(err)
	_, err = file.Write(make([]byte, 1<<20))
	f.check(errors.Join(err, file.Sync(), file.Close())) // before that, nothing need be allocated
	for n := range 2 {
		f.annotate(f.WaitForRootClaim(f.fileSystem), map[string]any{wellknown.AnnotationSurveyRequested: time.Now().UTC().Format(time.RFC3339)})
		f.Eventually("the survey is finished", func(ctx context.Context) error {
			if jobs := f.jobs(ctx, mountjobs.Survey, f.fileSystem); len(jobs) <= n {
				return fmt.Errorf("there are %d survey Jobs", len(jobs))
			}
			if record := mountjobs.SurveyRecordOf(f.rootClaim(ctx).Annotations); record.Ended.IsZero() {
				return fmt.Errorf("the record is %+v", record)
			}
			return nil
		})
		counted := f.waitForUsage(large, 1<<20)
		if counted.Files != 2 || !counted.OverRequest || counted.Incomplete != "" {
			t.Errorf("got %+v", counted)
		}
		if usage := f.waitForUsage(small, 0); usage.Files != 1 || usage.OverRequest {
			t.Errorf("got %+v", usage)
		}
		f.waitForEvent(large, wellknown.EventVolumeOverRequest, fmt.Sprintf("(%d bytes)", counted.Bytes), "64Ki")
		<-time.After(time.Second) // requests have seconds
	}
	f.expectEventCount(large, 1, wellknown.EventVolumeOverRequest)
	f.expectEventCount(small, 0, wellknown.EventVolumeOverRequest)
	f.WaitForJobsReleased()
}
