package jobs

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/events"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

const (
	// startReportDelay is how long a Job may fail to start before that is reported: a pod's first try
	// often comes a moment before its claim is bound or its node's tunnel is up.
	startReportDelay = 3 * time.Second
	// queueReportDelay is how long a claim waits behind a running Job, or for a worker that it was given
	// to, before that is reported: most wait for less, and a burst's events would compete with its volumes.
	queueReportDelay = 10 * time.Second
)

// reportStart reports, on the operations of a running Job, what keeps it from starting, and returns that; "" is
// nothing, or nothing that has lasted.
func (p *plan) reportStart(s state, running *mountJob) (text string, started bool) {
	reason, message := mountjobs.Diagnose(running.job, mountjobs.NewestPod(running.job, running.pods), running.warnings)
	if reason == "" || !p.IsDue(running.job.CreationTimestamp.Add(startReportDelay), s.Now) {
		return "", reason == ""
	}
	text = fmt.Sprintf("Job %s: %s", running.job.Name, message)
	for _, o := range running.outcome.Operations {
		p.Add(report{operation: o, message: text})
	}
	return text, false
}

// reportRunning reports, on everything that waits for a running Job, what keeps it from starting, and
// on claims behind a Job that has started what they wait for.
func (p *plan) reportRunning(s state, running *mountJob) {
	switch text, started := p.reportStart(s, running); {
	case text != "":
		p.warnAll(s.batched(), text)
	case started && p.IsDue(running.job.CreationTimestamp.Add(queueReportDelay), s.Now):
		p.reportGiven(s, running)
		p.reportQueue(s, running.job)
	}
}

// reportGiven reports what a worker was given and has not made yet. What a Job was created with is reported
// at once, because it waits for a pod.
func (p *plan) reportGiven(s state, running *mountJob) {
	for _, run := range running.outcome.Runs {
		if run.Number == operations.FirstBatch || !run.Running || !p.IsDue(run.Began.Add(queueReportDelay), s.Now) {
			continue
		}
		for _, o := range running.outcome.Operations[run.First : run.First+run.Count] {
			p.Add(report{operation: o, message: makes(running.job.Name, o), queued: true})
		}
	}
}

func (p *plan) reportQueue(s state, job *batchv1.Job) {
	text := fmt.Sprintf("the next mount Job of file system %s makes the directory, when Job %s has ended; if that takes long, see: kubectl -n %s describe job %s",
		s.ID, job.Name, job.Namespace, job.Name)
	for _, pending := range s.batched() {
		// Of one that is due later, the last failure was reported, with the time of the next attempt.
		if !pending.Due.After(s.Now) && p.IsDue(pending.Since.Add(queueReportDelay), s.Now) {
			p.Add(report{operation: pending.Operation, message: text, queued: true})
		}
	}
}

// reportNotReady says why no Job can begin, once that has lasted. The root claim of a new installation, or file
// system, is a moment younger than the claims that waited for it.
func (p *plan) reportNotReady(s state, due []decide.Pending) {
	if since := mountjobs.Later(s.notReadySince, due[0].Since); p.IsDue(since.Add(startReportDelay), s.Now) {
		p.warnAll(due, "no mount Job can begin: "+s.NotReady)
	}
}

func (p *plan) warnAll(all []decide.Pending, text string) {
	for _, pending := range all {
		p.Add(report{operation: pending.Operation, message: text})
	}
}

// reportNotCreated says why the next Job could not be created, if there is an error, unless the apiserver
// does not answer or the manager ends.
func (c *Controller) reportNotCreated(due []decide.Pending, doing string, err error) {
	if err == nil {
		for _, pending := range due {
			c.notCreated.Delete(pending.Operation.Volume)
		}
		return
	}
	var unanswered *url.Error
	if errors.Is(err, context.Canceled) || errors.As(err, &unanswered) {
		return
	}
	text := fmt.Sprintf("no mount Job can begin: %s failed: %v", doing, err)
	if apierrors.ReasonForError(err) == metav1.StatusReasonForbidden {
		text += fmt.Sprintf(" (let the quota, right or policy that this names admit it, in namespace %s)", c.options.Jobs.Namespace)
	}
	for _, pending := range due {
		c.notCreated.Set(pending.Operation.Volume, text, 2*maxRefused)
		c.report(report{operation: pending.Operation, message: text})
	}
}

func (c *Controller) sayBlocked(s state, p plan) {
	blocked := map[string]decide.Verdict{}
	for _, pending := range s.pending() {
		if text, ok := c.notCreated.Get(pending.Operation.Volume); ok {
			blocked[pending.Operation.Volume] = decide.Verdict{Cause: status.NoMountJob, Message: fmt.Sprint(text)}
		}
	}
	for _, change := range p.Steps {
		if r, ok := change.(report); ok && !r.queued {
			blocked[r.operation.Volume] = decide.Verdict{Cause: status.NoMountJob, Message: r.message}
		}
	}
	c.options.Blocked(s.ID, blocked)
}

func (c *Controller) report(r report) {
	switch subject, reason := c.subjectOf(r.operation); {
	case subject == nil:
	case !r.queued:
		cause := status.NoMountJob
		if reason != wellknown.EventProvisioningFailed {
			cause = decide.FailureOf(r.operation)
		}
		c.events.WarnBecause(cause, subject, reason, "job", r.message)
	case reason == wellknown.EventProvisioningFailed:
		c.events.Normal(subject, wellknown.EventProvisioning, "queue", r.message)
	}
}

// subjectOf is the object that an operation is reported on: the claim of a setup, else the volume; nil for none.
func (c *Controller) subjectOf(o operations.Operation) (subject events.Object, reason string) {
	if o.AddsOwner() && !o.Adopt {
		if claim := c.claimOf(o); claim != nil {
			return claim, wellknown.EventProvisioningFailed
		}
		return nil, ""
	}
	if object := c.gatherer.Caches.Volume(o.Volume); object != nil {
		return object, decide.EventOf(decide.FailureOf(o))
	}
	return nil, ""
}

func (c *Controller) reportProvisioning(job string, batch []operations.Operation) {
	for _, o := range batch {
		if subject, reason := c.subjectOf(o); reason == wellknown.EventProvisioningFailed && o.Attempt() == 1 {
			c.events.NormalAlways(subject, wellknown.EventProvisioning, makes(job, o))
		}
	}
}
