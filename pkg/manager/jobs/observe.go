package jobs

import (
	"cmp"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/background"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

type state struct {
	background.FileSystem

	named []*batchv1.Job // all that have the file system in their name, for the next number
	// These are ours, the oldest first. Of surveys, they are those that are not released.
	mounts, clones  []mountJob
	sweeps, surveys []background.Job
	// notReadySince is since when this replica has seen NotReady.
	notReadySince time.Time
	// erased says that the file system provably no longer exists, and its trash with it.
	erased bool
	// pending are the operations that wait, due or not, in their order. They are sorted only when needed.
	pending func() []decide.Pending
	// agents are those on nodes that take Jobs, and noNode says that there is no such node at all.
	agents []*corev1.Pod
	noNode bool
	// These are for sweep and survey.
	sweepDelay, surveyInterval time.Duration
	otherSurveys               func() int
}

// mountJob is a mount Job, or a clone Job, and what became of it.
type mountJob struct {
	job      *batchv1.Job
	pods     []*corev1.Pod
	warnings []corev1.Event // about a running Job and its pods
	outcome  mountjobs.Outcome
	err      error // its operations cannot be read
	// unreleased says that it still has the finalizer.
	unreleased bool
	// used says that everything that should follow from it has, but for a sweep.
	used bool
	// usedBatches are those of a waiting worker of which that is true, and of which nothing failed.
	usedBatches []int
	// unused is how many operations the batches have of which something still follows.
	unused int
	// fillsTrash says that it has left something to sweep, and filledTrash when it last did.
	fillsTrash  bool
	filledTrash time.Time
	// waits says that its worker waits for more operations.
	waits bool
	// calledOff says that a volume is not to be cleaned up any more, and that its program has not started.
	calledOff bool
	// abandoned says of a clone Job that its claim is deleted, and progressDue when to report how far it is.
	abandoned   bool
	progressDue time.Time
}

// maxPending is more than one Job carries: some may not be right any more when they are read live.
const maxPending = 1024

func (c *Controller) observe(id string) state {
	s := state{
		FileSystem: background.FileSystem{ID: id, Now: c.gatherer.Now()},
		named:      c.gatherer.Caches.JobsOfFileSystem(id),
		pending:    sync.OnceValue(func() []decide.Pending { return c.gatherer.Pending(id, maxPending) }),
		agents:     c.agents(),
		sweepDelay: c.options.SweepDelay, surveyInterval: c.options.SurveyInterval,
		otherSurveys: func() int { return c.otherSurveys(id) },
	}
	s.noNode = len(s.agents) == 0 && !c.hasNode()
	slices.SortFunc(s.named, func(a, b *batchv1.Job) int { // of two of one kind, a longer name has the greater number
		return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	for _, job := range s.named {
		c.observeJob(&s, job)
	}
	c.observeRoot(&s)
	return s
}

func (c *Controller) hasNode() bool {
	return slices.ContainsFunc(caches.All[*corev1.Node](c.gatherer.Caches.Nodes), c.options.Jobs.Takes)
}

// agents leaves out those on nodes that take no Job: agents tolerate every taint.
func (c *Controller) agents() []*corev1.Pod {
	return slices.DeleteFunc(c.gatherer.Caches.Agents(), func(agent *corev1.Pod) bool {
		return !c.options.Jobs.Takes(c.gatherer.Caches.Node(agent.Spec.NodeName))
	})
}

func (c *Controller) observeJob(s *state, job *batchv1.Job) {
	name, err := mountjobs.Identify(job)
	if err != nil {
		return // foreign; it counts for the next number only
	}
	m := mountJob{job: job, pods: c.gatherer.Caches.PodsOfJob(job), unreleased: mountjobs.IsUnreleased(job)}
	m.outcome, m.err = c.gatherer.Outcome(job)
	if !name.Kind.HasOperations() {
		s.addTask(background.Job{Job: job, Pods: m.pods, Outcome: m.outcome, Unreleased: m.unreleased, Log: c.logs.Of(job.UID, job.Annotations)})
		return
	}
	m.waits = m.err == nil && m.outcome.HoldsFileSystem() && c.options.Workers.Waits(job)
	switch {
	case m.waits:
		c.observeUse(&m)
	case m.outcome.HoldsFileSystem():
		m.calledOff = !mountjobs.HasStarted(m.pods) && slices.ContainsFunc(m.outcome.Operations, c.isCalledOff)
		m.warnings = c.gatherer.Caches.WarningsAbout(job.UID)
		for _, pod := range m.pods {
			m.warnings = append(m.warnings, c.gatherer.Caches.WarningsAbout(pod.UID)...)
		}
	case m.unreleased:
		c.observeUse(&m)
	}
	if name.Kind == mountjobs.Mount {
		s.mounts = append(s.mounts, m)
		return
	}
	m.progressDue = c.logs.Of(job.UID, nil).Next
	for _, o := range m.outcome.Operations {
		m.abandoned = c.claimOf(o) == nil
	}
	s.clones = append(s.clones, m)
}

// isCalledOff reports whether an operation would remove the directory of a volume that is to stay by now: its Job was
// created when that was not so.
func (c *Controller) isCalledOff(o operations.Operation) bool {
	object := c.gatherer.Caches.Volume(o.Volume)
	if o.Kind != operations.Cleanup || object == nil || object.Spec.ClaimRef == nil {
		return false
	}
	claim := c.gatherer.Caches.ClaimNamed(object.Spec.ClaimRef.Namespace, object.Spec.ClaimRef.Name)
	return !volumes.Read(object, c.gatherer.Provisioner).NeedsCleanup(claim)
}

func (s *state) addTask(job background.Job) {
	switch {
	case job.Outcome.Name.Kind == mountjobs.Sweep:
		s.sweeps = append(s.sweeps, job)
	case job.Unreleased:
		s.surveys = append(s.surveys, job)
	}
}

// observeUse finds out whether a Job that has ended may be released, or which batches a waiting worker's Job
// need not have any more. In a burst this is repeated for every volume that is created from the Job, and
// ends with the first operation that waits for its own.
func (c *Controller) observeUse(m *mountJob) {
	m.used = true
	if at, err := time.Parse(time.RFC3339, m.job.Annotations[wellknown.AnnotationFilledTrash]); err == nil {
		m.fillsTrash, m.filledTrash = true, at
	}
	for _, run := range m.outcome.Runs {
		used, done := true, true
		for n := range run.Count {
			a := c.gatherer.Attempt(m.job, m.outcome, run.First+n)
			if decide.FillsTrash(a) {
				m.fillsTrash, m.filledTrash = true, mountjobs.Later(m.filledTrash, a.Ended)
			}
			used = used && c.gatherer.IsUsed(a)
			done = done && a.Result.State == operations.Done
		}
		if used && done { // what failed counts for the wait until its next try as long as the Job has it
			m.usedBatches = append(m.usedBatches, run.Number)
		}
		if !used {
			m.unused += run.Count
		}
		m.used = m.used && used
	}
}

func (c *Controller) observeRoot(s *state) {
	namespace, name := c.options.Jobs.Namespace, volumes.RootName(s.ID)
	targets := c.gatherer.Targets()
	s.Root, s.RootVolume = c.gatherer.Caches.ClaimNamed(namespace, name), c.gatherer.Caches.Volume(name)
	pair := volumes.RootPair{FileSystemID: s.ID, Port: targets.Port(s.ID), Namespace: namespace, Volume: s.RootVolume, Claim: s.Root}
	if s.NotReady = pair.Ready(); s.NotReady == "" {
		c.notReady.Delete(s.ID)
	} else {
		since, _ := c.notReady.LoadOrStore(s.ID, s.Now)
		s.notReadySince, _ = since.(time.Time)
	}
	_, s.Listed = targets.FileSystems[s.ID]
	s.Gone, s.erased = !s.Listed && s.rootGoes(), targets.Gone[s.ID]
}
