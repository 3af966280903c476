package jobs

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/controller/lifecycle"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// state is what the loop knows of one file system.
type state struct {
	id    string
	now   time.Time
	named []*batchv1.Job // all that have the file system in their name, for the next number
	// mounts and sweeps are ours, the oldest first.
	mounts []mountJob
	sweeps []sweepJob
	// notReady is why no Job may use the root claim now, or "".
	notReady string
	root     *corev1.PersistentVolumeClaim
	// rootVolume remembers what the root claim does, for the next one.
	rootVolume *corev1.PersistentVolume
	// gone says that the file system has left the table, and that its root claim is to go.
	gone bool
	// erased says that the file system provably no longer exists, and its trash with it.
	erased bool
	// waiting are the operations that wait, due or not, in their order. They are sorted only when
	// they can be used.
	waiting func() []lifecycle.Pending
	// agents are those on nodes that take Jobs.
	agents []*corev1.Pod
	// sweepDelay is how long trash waits for more.
	sweepDelay time.Duration
}

// mountJob is a mount Job and what became of it.
type mountJob struct {
	job     *batchv1.Job
	pods    []*corev1.Pod
	outcome mountjobs.Outcome
	err     error // its operations cannot be read
	// unreleased says that it has the finalizer still.
	unreleased bool
	// used says that everything that should follow from it has, but for a sweep.
	used bool
	// fillsTrash says that it has left something to sweep.
	fillsTrash bool
}

type sweepJob struct {
	job        *batchv1.Job
	outcome    mountjobs.SweepOutcome
	unreleased bool
}

// maxPending is more than one Job carries: some may not be wanted any more when they are read live.
const maxPending = 1024

func (c *Controller) observe(id string) state {
	w := state{
		id:      id,
		now:     c.gatherer.Now(),
		named:   c.gatherer.Caches.JobsOfFileSystem(id),
		waiting: func() []lifecycle.Pending { return c.gatherer.Pending(id, maxPending) },
		agents:  c.agents(),

		sweepDelay: c.options.SweepDelay,
	}
	for _, job := range w.named {
		c.observeJob(&w, job)
	}
	slices.SortFunc(w.mounts, func(a, b mountJob) int { return a.outcome.Name.Number - b.outcome.Name.Number })
	slices.SortFunc(w.sweeps, func(a, b sweepJob) int { return a.outcome.Name.Number - b.outcome.Name.Number })
	c.observeRoot(&w)
	return w
}

// agents leaves out those on nodes that take no Job: agents tolerate every taint.
func (c *Controller) agents() []*corev1.Pod {
	return slices.DeleteFunc(c.gatherer.Caches.Agents(), func(agent *corev1.Pod) bool {
		return !c.options.Jobs.Takes(c.gatherer.Caches.Node(agent.Spec.NodeName))
	})
}

func (c *Controller) observeJob(w *state, job *batchv1.Job) {
	name, err := mountjobs.Identify(job)
	if err != nil {
		return // a stranger's; it counts for the next number only
	}
	unreleased := slices.Contains(job.Finalizers, wellknown.FinalizerOutcome)
	pods := c.gatherer.Caches.PodsOfJob(job)
	if name.Kind == mountjobs.Sweep {
		if outcome, err := c.gatherer.Sweep(job, pods); err == nil {
			w.sweeps = append(w.sweeps, sweepJob{job: job, outcome: outcome, unreleased: unreleased})
		}
		return
	}
	m := mountJob{job: job, pods: pods, unreleased: unreleased}
	m.outcome, m.err = c.gatherer.Outcome(job)
	if m.unreleased && !m.outcome.HoldsFileSystem() {
		c.observeUse(&m)
	}
	w.mounts = append(w.mounts, m)
}

// observeUse finds out whether a Job that has ended may be forgotten. In a burst it is asked again
// for every volume that comes of the Job, and the first operation that waits for its own settles
// it.
func (c *Controller) observeUse(m *mountJob) {
	m.used = true
	for _, a := range c.gatherer.AttemptsOf(m.job, m.outcome) {
		m.fillsTrash = m.fillsTrash || lifecycle.FillsTrash(a)
		m.used = m.used && c.gatherer.IsUsed(a)
	}
}

func (c *Controller) observeRoot(w *state) {
	namespace, name := c.options.Jobs.Namespace, volumes.RootName(w.id)
	port := c.gatherer.Targets().Port(w.id)
	w.root = c.gatherer.Caches.ClaimNamed(namespace, name)
	w.rootVolume = c.gatherer.Caches.Volume(name)
	pair := volumes.RootPair{
		FileSystemID: w.id, Port: port, Namespace: namespace,
		Volume: w.rootVolume, Claim: w.root,
	}
	w.notReady = pair.Ready()
	_, known := c.gatherer.Targets().FileSystems[w.id]
	w.gone, w.erased = !known && w.rootGoes(), c.gatherer.Targets().Gone[w.id]
}
