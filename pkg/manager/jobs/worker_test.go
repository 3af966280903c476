package jobs

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/manager/background"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// lingers has the worker of a running Job wait.
func lingers(m *mountJob) {
	runs(m)
	m.waits, m.usedBatches = true, []int{1, 2}
}

// hasAnnotations gives a Job annotations of that size.
func hasAnnotations(size int) func(*mountJob) {
	return func(m *mountJob) {
		m.job.Annotations = map[string]string{"x": strings.Repeat("x", size)}
	}
}

func TestDecideForAWorker(t *testing.T) {
	ready := wants("v1", ago(time.Minute), time.Time{})
	later := wants("v2", ago(time.Hour), now.Add(time.Minute))
	end := now.Add(time.Hour)
	for name, c := range map[string]struct {
		job    mountJob
		due    []decide.Pending
		change func(*state)
		given  []string
		again  time.Time
		ends   string // part of why the worker is ended
	}{
		"waits for nothing":     {job: mounted(1, lingers), again: end},
		"gets what is due":      {job: mounted(1, lingers), due: []decide.Pending{ready, later}, given: []string{"v1"}, again: later.Due},
		"has no room for more":  {job: mounted(1, lingers, hasAnnotations(129<<10)), due: []decide.Pending{ready}, again: end, ends: "no room"},
		"has room":              {job: mounted(1, lingers, hasAnnotations(127<<10)), due: []decide.Pending{ready}, given: []string{"v1"}, again: end},
		"has no room for later": {job: mounted(1, lingers, hasAnnotations(129<<10)), due: []decide.Pending{later}, again: later.Due},
		"works":                 {job: mounted(1, runs), due: []decide.Pending{ready}, again: end},
		"keeps the root claim from its end": {
			job: mounted(1, lingers), due: []decide.Pending{ready}, again: end, ends: "root claim",
			change: func(s *state) {
				s.Root = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: now}}}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := stateWith([]mountJob{c.job}, c.due...)
			if c.change != nil {
				c.change(&s)
			}
			p := planFor(s)
			var given []string
			for _, next := range changesOf[giveBatch](p) {
				for _, pending := range next.due {
					given = append(given, pending.Operation.Volume)
				}
			}
			ended := ""
			for _, end := range changesOf[endWorker](p) {
				ended += end.why
			}
			if (ended != "") != (c.ends != "") || !strings.Contains(ended, c.ends) {
				t.Errorf("the worker is ended because %q, want %q", ended, c.ends)
			}
			if !slices.Equal(given, c.given) || !p.Again.Equal(c.again) || len(changesOf[createJob](p)) > 0 || len(changesOf[background.Release](p)) > 0 {
				t.Errorf("got %+v, want %+v", p, c)
			}
		})
	}
}

// TestDecideSweepBesideAWorker: the trash does not wait for the worker's end.
func TestDecideSweepBesideAWorker(t *testing.T) {
	for name, c := range map[string]struct {
		filled time.Time
		sweep  time.Time // when one began; zero for none
		begin  bool
	}{
		"filled a while ago":      {filled: ago(time.Minute), begin: true},
		"filled just now":         {filled: ago(time.Second)},
		"swept since":             {filled: ago(time.Minute), sweep: ago(30 * time.Second)},
		"filled again since then": {filled: ago(20 * time.Second), sweep: ago(30 * time.Second), begin: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := mounted(1, lingers)
			m.fillsTrash, m.filledTrash = true, c.filled
			s := stateWith([]mountJob{m})
			if !c.sweep.IsZero() {
				s.sweeps = []background.Job{swept(c.sweep, mountjobs.Succeeded, time.Time{}, false)}
			}
			if got := len(changesOf[background.Create](planFor(s))) > 0; got != c.begin {
				t.Errorf("a sweep begins: %v", got)
			}
		})
	}
}
