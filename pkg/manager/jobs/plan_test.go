package jobs

import (
	"math"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/background"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

const fileSystem = "fs-00000001"

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// mounted is a mount Job that ended a minute ago.
func mounted(number int, change ...func(*mountJob)) mountJob {
	name := mountjobs.Name{Kind: mountjobs.Mount, FileSystemID: fileSystem, Number: number}
	m := mountJob{
		job: &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Namespace: "efs-stunnel", Name: name.String(), CreationTimestamp: metav1.NewTime(ago(2 * time.Minute))},
			Status:     batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}},
		},
		outcome:    mountjobs.Outcome{Status: mountjobs.Status{Name: name, State: mountjobs.Succeeded, Ended: ago(time.Minute), Node: "a"}},
		pods:       []*corev1.Pod{{}},
		unreleased: true,
		used:       true,
	}
	for _, c := range change {
		c(&m)
	}
	return m
}

func runs(m *mountJob) {
	m.outcome.State, m.outcome.Until, m.outcome.Ended = mountjobs.Running, now.Add(time.Hour), time.Time{}
}

func unused(m *mountJob) { m.used = false }
func old(m *mountJob)    { m.unreleased = false }
func fills(m *mountJob)  { m.fillsTrash = true }

// uncounted is a Job whose pod has ended, and the cluster has not said so of the Job.
func uncounted(m *mountJob) { m.job.Status.Conditions = nil }

// forgotten is a Job that did well and was used up, as the cache keeps it.
func forgotten(m *mountJob) {
	m.unreleased, m.err, m.job.Status.Succeeded = false, mountjobs.ErrFormat, 1
}

func silent(m *mountJob) {
	m.outcome.State, m.outcome.Ended, m.pods, m.used = mountjobs.Lost, time.Time{}, nil, false
}

func on(node string, state mountjobs.State) func(*mountJob) {
	return func(m *mountJob) { m.outcome.Node, m.outcome.State = node, state }
}

func swept(created time.Time, state mountjobs.State, next time.Time, unreleased bool) background.Job {
	return background.Job{
		Job: &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "efs-sweep-" + fileSystem + "-00001", CreationTimestamp: metav1.NewTime(created)}},
		Outcome: mountjobs.Outcome{
			Status: mountjobs.Status{Name: mountjobs.Name{Kind: mountjobs.Sweep}, State: state}, Task: operations.TaskReport{Swept: operations.Swept{Next: next}},
		},
		Unreleased: unreleased,
	}
}

// in is a sweep that has reported in how many seconds the next one is due.
func in(seconds int64, s background.Job) background.Job {
	s.Outcome.Task.NextIn = seconds
	return s
}

// stopped is a sweep whose time was over, after so many removals.
func stopped(created time.Time, removed int64) background.Job {
	s := swept(created, mountjobs.Finished, now.Add(time.Hour), true)
	s.Outcome.Task.Stopped, s.Outcome.Task.Removed = true, removed
	return s
}

func wants(volume string, since, due time.Time) decide.Pending {
	return decide.Pending{
		FileSystemID: fileSystem, Since: since, Due: due,
		Operation: operations.Operation{Kind: operations.Setup, Owner: operations.Owner{Volume: volume}},
	}
}

// tried is a restore that is to be tried for the nth time.
func tried(volume string, number int, since, due time.Time) decide.Pending {
	w := wants(volume, since, due)
	w.Operation.Kind, w.Operation.Try = operations.Restore, number
	return w
}

// stateWith has the operations wait in their order, as the gatherer gives them.
func stateWith(mounts []mountJob, pending ...decide.Pending) state {
	slices.SortFunc(pending, func(a, b decide.Pending) int { return a.Turn().Compare(b.Turn()) })
	return state{
		FileSystem: background.FileSystem{ID: fileSystem, Now: now},
		sweepDelay: background.DefaultSweepDelay, mounts: mounts, pending: func() []decide.Pending { return pending },
	}
}

// changesOf are the changes of one type.
func changesOf[T any](p plan) (all []T) {
	for _, c := range p.Steps {
		if typed, ok := c.(T); ok {
			all = append(all, typed)
		}
	}
	return all
}

// due are the volumes of the operations that a plan makes the next Job of.
func due(p plan) (names []string) {
	for _, next := range changesOf[createJob](p) {
		if next.kind != mountjobs.Mount {
			continue
		}
		for _, pending := range next.due {
			names = append(names, pending.Operation.Volume)
		}
	}
	return names
}

func TestDecideNextJob(t *testing.T) {
	ready := wants("v1", ago(time.Minute), time.Time{})
	older := wants("v2", ago(time.Hour), ago(time.Second))
	later := wants("v3", ago(time.Hour), now.Add(time.Minute))
	for name, c := range map[string]struct {
		state   state
		running bool
		due     []string
		warned  []string
		again   time.Time
	}{
		"restores that failed often wait":     {state: stateWith(nil, tried("r1", 3, ago(time.Hour), ago(time.Minute))), again: now.Add(restoreWait - time.Minute)},
		"and have a Job of their own then":    {state: stateWith(nil, tried("r1", 3, ago(time.Hour), ago(restoreWait)), tried("r2", 9, ago(time.Hour), ago(time.Second))), due: []string{"r1", "r2"}},
		"or are sent with others":             {state: stateWith(nil, tried("r1", 3, ago(time.Hour), ago(time.Second)), ready), due: []string{"v1", "r1"}},
		"restores that did not begin at once": {state: stateWith(nil, tried("r1", 1, ago(time.Second), time.Time{})), due: []string{"r1"}},
		"the second try is prompt":            {state: stateWith(nil, tried("r1", 2, ago(time.Hour), ago(time.Second))), due: []string{"r1"}},
		"restores take turns":                 {state: stateWith(nil, tried("r1", 9, ago(time.Hour), ago(time.Second)), tried("r2", 1, ago(time.Minute), time.Time{}), tried("r3", 3, ago(time.Hour), ago(2*time.Second))), due: []string{"r2", "r3", "r1"}},
		"setups that failed often do not wait": {state: stateWith(nil, func() decide.Pending {
			w := tried("v1", 9, ago(time.Hour), ago(time.Second))
			w.Operation.Kind = operations.Setup
			return w
		}()), due: []string{"v1"}},
		"restores that failed often, a Job runs": {state: stateWith([]mountJob{mounted(1, runs)}, tried("r1", 3, ago(time.Hour), ago(time.Minute))), running: true, again: now.Add(time.Hour)},
		"nothing":                                {state: stateWith(nil)},
		"one":                                    {state: stateWith(nil, ready), due: []string{"v1"}},
		"two":                                    {state: stateWith(nil, ready, older), due: []string{"v1", "v2"}},
		"later":                                  {state: stateWith(nil, later), again: later.Due},
		"some later":                             {state: stateWith(nil, later, ready), due: []string{"v1"}, again: later.Due},
		"a Job runs":                             {state: stateWith([]mountJob{mounted(1, runs)}, ready), running: true, again: now.Add(time.Hour)},
		"a Job has ended":                        {state: stateWith([]mountJob{mounted(1)}, ready), due: []string{"v1"}},
		"root claim not ready": {state: func() state {
			w := stateWith(nil, ready)
			w.NotReady = "it is not bound"
			return w
		}(), warned: []string{"v1"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := planFor(c.state)
			var warned []string
			for _, r := range changesOf[report](p) {
				if !r.queued {
					warned = append(warned, r.operation.Volume)
				}
			}
			if (c.state.running() != nil) != c.running || !slices.Equal(due(p), c.due) || !slices.Equal(warned, c.warned) || !p.Again.Equal(c.again) {
				t.Errorf("got %+v, want %+v", p, c)
			}
		})
	}
}

func TestDecideRelease(t *testing.T) {
	for name, c := range map[string]struct {
		job    mountJob
		sweeps []background.Job
		erased bool
		want   bool
	}{
		"used":                        {job: mounted(1), want: true},
		"not used":                    {job: mounted(1, unused)},
		"released before":             {job: mounted(1, old)},
		"running":                     {job: mounted(1, runs)},
		"trash not swept":             {job: mounted(1, fills)},
		"trash, not used":             {job: mounted(1, fills, unused)},
		"trash, running":              {job: mounted(1, fills, runs)},
		"trash, released before":      {job: mounted(1, fills, old)},
		"trash swept before it ended": {job: mounted(1, fills), sweeps: []background.Job{swept(ago(90*time.Second), mountjobs.Succeeded, time.Time{}, false)}},
		"trash swept since":           {job: mounted(1, fills), sweeps: []background.Job{swept(ago(30*time.Second), mountjobs.Running, time.Time{}, true)}, want: true},
		"trash is gone":               {job: mounted(1, fills), erased: true, want: true},
		"trash is gone, not used":     {job: mounted(1, fills, unused), erased: true},
		"unreadable":                  {job: mounted(1, unused, func(m *mountJob) { m.err = mountjobs.ErrFormat }), want: true},
	} {
		w := stateWith([]mountJob{c.job})
		w.sweeps, w.erased = c.sweeps, c.erased
		if p := planFor(w); len(changesOf[background.Release](p)) == 1 != c.want {
			t.Errorf("%s: got %+v", name, p)
		}
	}
}

func TestPodsThatKeepTheRootClaimAreDeleted(t *testing.T) {
	goes := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: now}}}
	for name, c := range map[string]struct {
		root *corev1.PersistentVolumeClaim
		job  mountJob
		want int
	}{
		"stays":                  {&corev1.PersistentVolumeClaim{}, mounted(1, fills), 0},
		"goes, trash not swept":  {goes, mounted(1, fills), 1},
		"goes, waits for a try":  {goes, mounted(1, unused), 1},
		"goes, outcome not used": {goes, mounted(1, fills, unused, func(m *mountJob) { m.outcome.Ended = ago(time.Second) }), 0},
		"goes, pod not counted":  {goes, mounted(1, fills, uncounted), 0},
		"goes, pods deleted":     {goes, mounted(1, fills, func(m *mountJob) { m.job.DeletionTimestamp = goes.DeletionTimestamp }), 0},
		"goes, Job runs":         {goes, mounted(1, runs), 0},
	} {
		w := stateWith([]mountJob{c.job})
		w.Root, w.NotReady = c.root, "it is being deleted"
		if p := planFor(w); len(changesOf[deletePods](p)) != c.want || len(changesOf[background.Release](p)) != 0 {
			t.Errorf("%s: got %+v, want %d Jobs whose pods are deleted", name, p, c.want)
		}
	}
}

func TestSweepsOfAFileSystemThatIsGone(t *testing.T) {
	running := swept(ago(time.Minute), mountjobs.Running, time.Time{}, true)
	for name, c := range map[string]struct {
		gone bool
		want int
	}{"there": {false, 0}, "gone": {true, 1}} {
		w := withSweeps([]mountJob{mounted(1, fills)}, nil, running)
		w.Gone, w.NotReady = c.gone, "it is being deleted"
		if p := planFor(w); len(changesOf[background.Delete](p)) != c.want || len(changesOf[background.Create](p)) > 0 {
			t.Errorf("%s: got %+v, want %d sweeps deleted", name, p, c.want)
		}
	}
}

func TestJobWithoutPodsIsReadLive(t *testing.T) {
	p := planFor(stateWith([]mountJob{mounted(1, silent)}, wants("v1", now, time.Time{})))
	if next := changesOf[createJob](p); len(next) != 1 || len(next[0].podless) != 1 || len(next[0].due) != 1 {
		t.Errorf("got %+v", p)
	}
}

func TestDecideSweep(t *testing.T) {
	recorded := func(text string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{wellknown.AnnotationNextSweep: text}}}
	}
	annotated := func(at time.Time) *corev1.PersistentVolumeClaim { return recorded(at.Format(time.RFC3339)) }
	remade := &corev1.PersistentVolumeClaim{}
	used := []mountJob{mounted(1, forgotten, func(m *mountJob) { m.outcome.Ended = ago(background.FirstSweepDelay) })}
	filled := []mountJob{mounted(1, fills)}
	recent := []mountJob{mounted(1, fills, func(m *mountJob) { m.outcome.Ended = ago(time.Second) })}
	for name, c := range map[string]struct {
		state  state
		begin  bool
		record bool
		next   time.Time
		again  time.Time
	}{
		"nothing":              {state: stateWith(nil)},
		"trash":                {state: stateWith(filled), begin: true, again: ago(50 * time.Second)},
		"trash of this moment": {state: stateWith(recent), again: now.Add(9 * time.Second)},
		"trash, root not ready": {state: func() state {
			w := stateWith(filled)
			w.NotReady = "not bound"
			return w
		}()},
		"sweep runs":                    {state: withSweeps(filled, nil, swept(ago(time.Hour), mountjobs.Running, time.Time{}, true))},
		"swept":                         {state: withSweeps(filled, nil, swept(ago(time.Second), mountjobs.Succeeded, time.Time{}, false))},
		"sweep has ended":               {state: withSweeps(nil, nil, in(3600, swept(ago(time.Second), mountjobs.Succeeded, now.Add(time.Hour), true))), record: true, next: now.Add(time.Hour)},
		"next sweep by the server":      {state: withSweeps(nil, nil, in(30, swept(ago(time.Second), mountjobs.Succeeded, now.Add(-1000*time.Hour), true))), record: true, next: now.Add(30 * time.Second)},
		"next sweep, server's clock":    {state: withSweeps(nil, nil, in(30, swept(ago(time.Second), mountjobs.Succeeded, now.Add(1000*time.Hour), true))), record: true, next: now.Add(30 * time.Second)},
		"next sweep, at this moment":    {state: withSweeps(nil, nil, in(0, swept(ago(time.Second), mountjobs.Succeeded, now, true))), record: true, next: now.Add(time.Second)},
		"next sweep, beyond all time":   {state: withSweeps(nil, nil, in(math.MaxInt64, swept(ago(time.Second), mountjobs.Succeeded, now, true))), record: true, next: now.Add(200 * 365 * 24 * time.Hour)},
		"sweep was lost":                {state: withSweeps(nil, nil, swept(ago(time.Second), mountjobs.Lost, time.Time{}, true)), record: true, next: now.Add(time.Minute)},
		"sweep was lost again":          {state: withSweeps(nil, nil, swept(ago(time.Hour), mountjobs.Finished, time.Time{}, false), swept(ago(time.Second), mountjobs.Lost, time.Time{}, true)), record: true, next: now.Add(2 * time.Minute)},
		"sweep was stopped":             {state: withSweeps(nil, nil, stopped(ago(time.Second), 7)), record: true, next: now},
		"stopped, then lost":            {state: withSweeps(nil, nil, swept(ago(2*time.Hour), mountjobs.Lost, time.Time{}, false), stopped(ago(time.Hour), 7), swept(ago(time.Second), mountjobs.Lost, time.Time{}, true)), record: true, next: now.Add(time.Minute)},
		"stopped, nothing done":         {state: withSweeps(nil, nil, stopped(ago(time.Second), 0)), record: true, next: now.Add(time.Minute)},
		"the time has come":             {state: withSweeps(nil, annotated(ago(time.Second))), begin: true, again: ago(time.Second)},
		"nothing is known, no Job yet":  {state: withSweeps(nil, remade)},
		"nothing is known, a Job now":   {state: withSweeps([]mountJob{mounted(1)}, remade), again: now.Add(background.FirstSweepDelay - time.Minute)},
		"nothing is known, long since":  {state: withSweeps(used, remade), begin: true, again: now},
		"nothing is known, Jobs failed": {state: withSweeps([]mountJob{mounted(1, old, on("a", mountjobs.Lost))}, remade)},
		"nothing is known, just swept":  {state: withSweeps(used, remade, swept(ago(time.Second), mountjobs.Succeeded, time.Time{}, false))},
		"known to be empty":             {state: withSweeps(used, recorded(background.NoSweep))},
		"known to be empty, filled":     {state: withSweeps(filled, recorded(background.NoSweep)), begin: true, again: ago(50 * time.Second)},
		"the time has not come":         {state: withSweeps(nil, annotated(now.Add(time.Hour))), again: now.Add(time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			var p plan
			p.AddTask(c.state.sweep())
			var next time.Time
			recorded := changesOf[background.Record](p)
			for _, r := range recorded {
				next, _ = time.Parse(time.RFC3339, r.Value) // zero for never
			}
			if len(changesOf[background.Create](p)) > 0 != c.begin || len(recorded) > 0 != c.record || !next.Equal(c.next) || !p.Again.Equal(c.again) {
				t.Errorf("got %+v, want %+v", p, c)
			}
		})
	}
}

func withSweeps(mounts []mountJob, root *corev1.PersistentVolumeClaim, sweeps ...background.Job) state {
	w := stateWith(mounts)
	w.Root, w.sweeps = root, sweeps
	return w
}

func TestNodesOfFailedJobsAreAvoided(t *testing.T) {
	agents := []*corev1.Pod{readyAgent("a"), readyAgent("b")}
	for name, c := range map[string]struct {
		mounts []mountJob
		want   int
	}{
		"none failed":       {[]mountJob{mounted(1, on("a", mountjobs.Succeeded))}, 0},
		"last was lost":     {[]mountJob{mounted(1, on("a", mountjobs.Lost))}, 1},
		"well since":        {[]mountJob{mounted(1, on("a", mountjobs.Lost)), mounted(2, on("b", mountjobs.Succeeded))}, 0},
		"used up, not kept": {[]mountJob{mounted(1, on("a", mountjobs.Lost), forgotten)}, 0},
		"well, used up":     {[]mountJob{mounted(1, on("a", mountjobs.Lost)), mounted(2, on("b", mountjobs.Lost), forgotten)}, 0},
		"unreadable":        {[]mountJob{mounted(1, on("a", mountjobs.Lost), func(m *mountJob) { m.err = mountjobs.ErrFormat })}, 0},
		"led nowhere":       {[]mountJob{mounted(1, on("a", mountjobs.Lost)), mounted(2, avoiding, on("", mountjobs.Lost))}, 0},
		"led nowhere once":  {[]mountJob{mounted(1, on("a", mountjobs.Lost)), mounted(2, avoiding, on("", mountjobs.Lost)), mounted(3, on("a", mountjobs.Lost))}, 0},
		"nowhere, for all":  {[]mountJob{mounted(1, on("a", mountjobs.Lost)), mounted(2, on("", mountjobs.Lost))}, 1},
		"failed everywhere": {[]mountJob{mounted(1, on("a", mountjobs.Lost)), mounted(2, on("b", mountjobs.Lost))}, 0},
	} {
		w := stateWith(c.mounts)
		w.agents = agents
		if got := len(w.nodesToAvoid()); got != c.want {
			t.Errorf("%s: avoids %d nodes, want %d", name, got, c.want)
		}
	}
}

func readyAgent(node string) *corev1.Pod {
	return &corev1.Pod{
		Spec:   corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
}
