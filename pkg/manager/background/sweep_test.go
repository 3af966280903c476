package background

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestTrashWaitsLongerAfterManySweepsThatFoundLittle, up to some minutes.
func TestTrashWaitsLongerAfterManySweepsThatFoundLittle(t *testing.T) {
	for name, c := range map[string]struct {
		sweeps  int
		every   time.Duration
		volumes int // that each has found
		want    time.Duration
	}{
		"none":              {want: DefaultSweepDelay},
		"a few":             {sweeps: promptSweeps, every: 10 * time.Second, volumes: 1, want: DefaultSweepDelay},
		"one more":          {sweeps: promptSweeps + 1, every: 10 * time.Second, volumes: 1, want: 2 * DefaultSweepDelay},
		"very many":         {sweeps: 50, every: 10 * time.Second, volumes: 1, want: longestTrashWait},
		"that found much":   {sweeps: 50, every: 10 * time.Second, volumes: fewVolumes, want: DefaultSweepDelay},
		"that are long ago": {sweeps: 10, every: 5 * time.Minute, volumes: 1, want: DefaultSweepDelay},
	} {
		s := Sweep{FileSystem: FileSystem{Now: now}, Delay: DefaultSweepDelay, Filled: now}
		for n := range c.sweeps {
			created := metav1.NewTime(ago(time.Duration(c.sweeps-n) * c.every))
			sweep := Job{Job: &batchv1.Job{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: created}}}
			sweep.Outcome.Task.Volumes = c.volumes
			s.Jobs = append(s.Jobs, sweep)
		}
		if _, due := s.Next(); due.Sub(now) != c.want {
			t.Errorf("%s: trash waits for %s, want %s", name, due.Sub(now), c.want)
		}
	}
}
