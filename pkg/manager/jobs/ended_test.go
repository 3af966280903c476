package jobs

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/manager/background"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// avoiding is a Job that was kept off nodes.
func avoiding(m *mountJob) {
	m.job.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
}

func unscheduled(m *mountJob) {
	pod := runningPod(m.job)
	pod.Spec.NodeName, pod.Status = "", corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}}
	m.pods = []*corev1.Pod{pod}
}

func made(before time.Duration) func(*mountJob) {
	return func(m *mountJob) { m.job.CreationTimestamp = metav1.NewTime(ago(before)) }
}

// A Job that avoids nodes may be left with none: no claim should wait for its deadline.
func TestJobThatFindsNoOtherNodeIsEnded(t *testing.T) {
	for name, c := range map[string]struct {
		job   mountJob
		ended bool
		again time.Duration // from now
	}{
		"it avoids nodes":       {mounted(1, runs, avoiding, unscheduled), true, time.Hour},
		"it is young":           {mounted(1, runs, avoiding, unscheduled, made(queueReportDelay+time.Second)), false, schedulingTime - queueReportDelay - time.Second},
		"it avoids none":        {mounted(1, runs, unscheduled), false, time.Hour},
		"it has found a node":   {mounted(1, runs, avoiding), false, time.Hour},
		"it was ended long ago": {mounted(1, avoiding, unscheduled, on("", mountjobs.Lost)), false, 0},
	} {
		p := planFor(stateWith([]mountJob{c.job}))
		again := time.Duration(0)
		if !p.Again.IsZero() {
			again = p.Again.Sub(now)
		}
		if len(changesOf[background.End](p)) > 0 != c.ended || again != c.again {
			t.Errorf("%s: got %+v, want %+v", name, p, c)
		}
	}
}

// TestJobThatKeepsALostRootClaimIsEnded: no claim should wait for the deadline of a Job that cannot start.
func TestJobThatKeepsALostRootClaimIsEnded(t *testing.T) {
	creating := []*corev1.Pod{{Spec: corev1.PodSpec{NodeName: "a"}, Status: corev1.PodStatus{Phase: corev1.PodPending}}}
	holds := mounted(1, runs, func(m *mountJob) { m.pods = creating })
	sweep := swept(ago(time.Minute), mountjobs.Running, time.Time{}, true)
	sweep.Pods = creating
	for name, s := range map[string]state{
		"mount Job": {mounts: []mountJob{holds}},
		"clone Job": {clones: []mountJob{holds}},
		"sweep":     {sweeps: []background.Job{sweep}},
		"survey":    {surveys: []background.Job{sweep}},
	} {
		s.Now, s.pending = now, stateWith(nil).pending
		for phase, want := range map[corev1.PersistentVolumeClaimPhase]int{corev1.ClaimLost: 1, corev1.ClaimBound: 0} {
			s.Root = &corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Phase: phase}}
			if got := len(changesOf[background.End](planFor(s))); got != want {
				t.Errorf("%s, root claim %s: %d are ended", name, phase, got)
			}
		}
	}
}
