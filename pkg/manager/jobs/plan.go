package jobs

import (
	"cmp"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/manager/background"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// plan is what is to be done on one file system. Its steps are the types below, and those of package background.
type plan struct{ background.Plan }

type (
	// createJob creates the next mount Job, of operations that are due, or a clone Job of one that copies a volume.
	// podless are Jobs that seem to be over without an outcome: the cache may only be behind.
	createJob struct {
		kind    mountjobs.Kind
		due     []decide.Pending
		podless []*batchv1.Job
	}
	// reportProgress reports how far a clone Job is.
	reportProgress struct{ clone *mountJob }
	// giveBatch gives operations that are due to the worker of a mount Job, which waits for more.
	giveBatch struct {
		due []decide.Pending
		job *mountJob
	}
	// endWorker ends a mount Job whose worker waits, and says why.
	endWorker struct {
		job *batchv1.Job
		why string
	}
	// deletePods deletes the pods of a Job that waits for a sweep or for the next try, because they keep
	// the root claim from being deleted. The Job stays until it is released.
	deletePods struct{ job *batchv1.Job }
	// report writes an event on the object of an operation: a Warning, or for one that only waits for a
	// running Job to end, if it is a setup, a Normal event.
	report struct {
		operation operations.Operation
		message   string
		queued    bool
	}
)

// planFor plans for one file system. The next Job comes first: it may be made of the outcomes of those
// that are released.
//
//	newest mount Job   root claim  operations       what is done
//	worker waits       ready       due              they are given to the worker; if its Job has no room, it is ended
//	worker waits       goes        any              the worker is ended
//	running            any         any              nothing, until its end is due
//	ended, or none     not ready   due              reported
//	ended, or none     ready       due              the next Job
//	ended, or none     any         due later, none  nothing, until then
//
// In any case, Jobs of which everything was used are released, the trash is swept, and volumes are surveyed.
func planFor(s state) plan {
	var p plan
	switch running := s.running(); {
	case running == nil:
		p.planNext(s, nil)
	case running.waits:
		p.Recheck(running.outcome.Until)
		p.planNext(s, running)
	default:
		p.Recheck(running.outcome.Until)
		p.reportRunning(s, running)
		p.endUnstartable(s, running)
	}
	for i := range s.mounts {
		p.planEnded(s, &s.mounts[i])
	}
	p.planClones(s)
	p.AddTask(s.sweep())
	p.AddTask(s.survey())
	return p
}

// planEnded releases a Job that has ended once its outcome is used, or has it leave the root claim.
func (p *plan) planEnded(s state, m *mountJob) {
	switch {
	case s.isDone(m):
		p.Add(background.Release{Job: m.job, Unsuccessful: !m.outcome.Report.Succeeded()})
	case s.keepsRoot(m):
		p.freeRoot(s, m)
	}
}

// planNext plans what becomes of the operations that are due: waiting has a worker that waits, or is nil.
func (p *plan) planNext(s state, waiting *mountJob) {
	// A volume that names two claims, in its name and in its claimRef, is decided about for both.
	due := p.holdBackRestores(slices.CompactFunc(p.due(s.batched(), s.Now), isSame), s.Now)
	switch {
	case waiting != nil && s.rootGoes():
		p.Add(endWorker{waiting.job, "its root claim is being deleted"})
	case len(due) == 0:
	case s.NotReady != "":
		p.reportNotReady(s, due)
	case waiting == nil:
		p.Add(createJob{mountjobs.Mount, due, s.podlessOf(s.mounts)})
	case mountjobs.HasRoom(waiting.job, waiting.usedBatches):
		p.Add(giveBatch{due, waiting})
	default:
		p.Add(endWorker{waiting.job, "it has no room for more operations"})
	}
}

// due returns the operations whose time has come, and plans again when that of others does.
func (p *plan) due(all []decide.Pending, now time.Time) []decide.Pending {
	return slices.DeleteFunc(slices.Clone(all), func(pending decide.Pending) bool { return !p.IsDue(pending.Due, now) })
}

// holdBackRestores gives the operations that are due, unless all are restores that failed time and
// again: those are packed into Jobs of other operations, and get a Job of their own only after a while.
// Otherwise claims that restore unknown uids would keep one Job after the other running, and delay other claims.
func (p *plan) holdBackRestores(due []decide.Pending, now time.Time) []decide.Pending {
	isPrompt := func(pending decide.Pending) bool {
		return pending.Operation.Kind != operations.Restore || pending.Operation.Attempt() <= promptTries
	}
	if len(due) == 0 || slices.ContainsFunc(due, isPrompt) || p.IsDue(due[0].Turn().Add(restoreWait), now) {
		return due
	}
	return nil
}

const (
	// promptTries of a restore begin a Job at once.
	promptTries = 2
	// restoreWait is how long a restore that failed more often waits for a Job of others.
	restoreWait = 4 * time.Minute
)

// endUnstartable ends a Job that avoids nodes and finds no other, one that keeps the root claim from being replaced, and
// one that would remove what is to stay: what else it has is sent again. What a node has room for, or what else keeps Jobs from it, only the scheduler knows.
func (p *plan) endUnstartable(s state, m *mountJob) {
	unschedulable := mountjobs.AvoidsNodes(m.job) && mountjobs.FindsNoNode(m.pods) && p.IsDue(m.job.CreationTimestamp.Add(schedulingTime), s.Now)
	if unschedulable || m.calledOff || mountjobs.CannotStart(s.Root, m.pods) {
		p.Add(background.End{Job: m.job})
	}
}

// schedulingTime is how long a Job that avoids nodes may wait for another. All claims wait for it.
const schedulingTime = 30 * time.Second

// freeRoot deletes the pods of a Job whose outcome was used, or was not for a while: it waits for its
// next try then, which knows what the pod has reported or finds it out again.
func (p *plan) freeRoot(s state, m *mountJob) {
	if m.used || p.IsDue(m.end().Add(useDelay), s.Now) {
		p.Add(deletePods{m.job})
	}
}

// useDelay is longer than it takes to use an outcome, at the default rate of requests.
const useDelay = 30 * time.Second

// running is the Job that holds the file system, nil if none does.
func (s state) running() *mountJob {
	for i := range slices.Backward(s.mounts) {
		if s.mounts[i].outcome.HoldsFileSystem() {
			return &s.mounts[i]
		}
	}
	return nil
}

func (s state) isDone(m *mountJob) bool {
	return m.isEnded() && (m.err != nil || m.used && (!m.fillsTrash || s.sweptSince(m) || s.erased))
}

func (s state) keepsRoot(m *mountJob) bool {
	return m.isEnded() && s.rootGoes() && m.job.DeletionTimestamp == nil && mountjobs.IsOver(m.job)
}

func (m *mountJob) isEnded() bool { return m.unreleased && !m.outcome.HoldsFileSystem() }

// rootGoes says that the root claim is being deleted. It goes with the last pod that has it, and no
// sweep can begin before there is another one.
func (s state) rootGoes() bool { return s.Root != nil && s.Root.DeletionTimestamp != nil }

// nodesToAvoid are those where the newest Jobs failed, back to the last one that succeeded. They are
// none if a Job that avoided them found no other since.
func (s state) nodesToAvoid() []string {
	var failed []string
	for _, m := range slices.Backward(s.mounts) {
		if m.succeeded() || s.Now.Sub(m.job.CreationTimestamp.Time) > nodeBlame {
			break
		}
		if m.foundNoNode() && mountjobs.AvoidsNodes(m.job) {
			return nil
		}
		if m.err == nil && m.outcome.BlamesNode() {
			failed = append(failed, m.outcome.Node)
		}
	}
	return mountjobs.NodesToAvoid(failed, s.agents)
}

// succeeded also knows a Job that was released, whose outcome cannot be read: its operations are not kept.
func (m *mountJob) succeeded() bool {
	return m.outcome.State == mountjobs.Succeeded || !m.unreleased && m.job.Status.Succeeded > 0
}

// foundNoNode says that a Job is over and no node is known to have had its pod.
func (m *mountJob) foundNoNode() bool {
	over := m.outcome.State == mountjobs.Lost || m.outcome.State == mountjobs.Stuck
	return over && m.outcome.Node == ""
}

// nodeBlame is how long a failure counts against its node.
const nodeBlame = 30 * time.Minute

func (m *mountJob) end() time.Time { return cmp.Or(m.outcome.Ended, m.job.CreationTimestamp.Time) }
