package jobs

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/controller/lifecycle"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/tell"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// reportDelay is how long a Job may stumble before people are told: a pod's first try often comes
// a moment before its claim is bound or its node's tunnel is up.
const reportDelay = 3 * time.Second

// queueReportDelay is how long a claim waits behind a running Job before its owner is told: most Jobs
// end sooner, and the claim's next event says that its own Job has begun.
const queueReportDelay = 10 * time.Second

// reportRunning says on everything that waits for a Job what keeps it from starting, and on claims
// behind a Job that has started what they wait for.
func (c *Controller) reportRunning(w state, running *mountJob) (again time.Duration) {
	pod := newestPod(running.pods)
	reason, message := mountjobs.Diagnose(running.job, pod, c.eventsAbout(running.job, pod))
	if reason == "" {
		return c.reportQueued(w, running.job.Name, running.job.CreationTimestamp.Time)
	}
	if young := reportDelay - w.now.Sub(running.job.CreationTimestamp.Time); young > 0 {
		return young
	}
	text := fmt.Sprintf("Job %s: %s", running.job.Name, message)
	for _, o := range running.outcome.Operations {
		c.reportOperation(o, text)
	}
	c.reportAll(w.waiting(), text)
	return 0
}

// reportQueued says on the claims that wait for the next Job which Job runs now.
func (c *Controller) reportQueued(w state, job string, began time.Time) (again time.Duration) {
	if young := queueReportDelay - w.now.Sub(began); young > 0 {
		return young
	}
	for _, wanted := range w.waiting() {
		if wanted.Due.After(w.now) {
			continue // its last failure is told, with the time of the next attempt
		}
		if young := queueReportDelay - w.now.Sub(wanted.Since); young > 0 {
			again = earliest(again, young)
			continue
		}
		if subject, reason := c.subjectOf(wanted.Operation); reason == wellknown.EventProvisioningFailed {
			c.tell.SayOf(subject, wellknown.EventProvisioning, "queue", queuedText(w.id, job, c.options.Jobs.Namespace))
		}
	}
	return again
}

func queuedText(fileSystemID, job, namespace string) string {
	return fmt.Sprintf("the next mount Job of file system %s makes the directory, when Job %s has ended; if that takes long, see: kubectl -n %s describe job %s",
		fileSystemID, job, namespace, job)
}

// reportNotCreated says why the next Job could not be made. An apiserver that does not answer, and a
// manager that ends, are no news of the claims.
func (c *Controller) reportNotCreated(due []lifecycle.Pending, doing string, err error) {
	var unanswered *url.Error
	if errors.Is(err, context.Canceled) || errors.As(err, &unanswered) {
		return
	}
	text := fmt.Sprintf("no mount Job can begin: %s failed: %v", doing, err)
	if apierrors.ReasonForError(err) == metav1.StatusReasonForbidden {
		text += fmt.Sprintf(" (let the quota, right or policy that this names admit it, in namespace %s)", c.options.Jobs.Namespace)
	}
	c.reportAll(due, text)
}

// reportNotReady says why no Job can begin, once that has lasted.
func (c *Controller) reportNotReady(w state, p plan) (again time.Duration) {
	since := p.due[0].Since
	if w.root != nil && w.root.CreationTimestamp.After(since) {
		since = w.root.CreationTimestamp.Time
	}
	if young := reportDelay - w.now.Sub(since); young > 0 {
		return young
	}
	c.reportAll(p.due, "no mount Job can begin: "+p.wait)
	return 0
}

func newestPod(pods []*corev1.Pod) *corev1.Pod {
	var newest *corev1.Pod
	for _, pod := range pods {
		if newest == nil || pod.CreationTimestamp.After(newest.CreationTimestamp.Time) {
			newest = pod
		}
	}
	return newest
}

func (c *Controller) eventsAbout(job *batchv1.Job, pod *corev1.Pod) []corev1.Event {
	found := c.gatherer.Caches.WarningsAbout(job.UID)
	if pod != nil {
		found = append(found, c.gatherer.Caches.WarningsAbout(pod.UID)...)
	}
	events := make([]corev1.Event, len(found))
	for i, event := range found {
		events[i] = *event
	}
	return events
}

func (c *Controller) reportAll(waiting []lifecycle.Pending, text string) {
	for _, wanted := range waiting {
		c.reportOperation(wanted.Operation, text)
	}
}

// reportOperation writes on the object that people look at: the claim of a setup, the volume of
// anything else.
func (c *Controller) reportOperation(o operations.Operation, text string) {
	if subject, reason := c.subjectOf(o); subject != nil {
		c.tell.WarnOf(subject, reason, "job", text)
	}
}

func (c *Controller) subjectOf(o operations.Operation) (subject tell.Object, reason string) {
	if o.AddsOwner() && !o.Adopt {
		if claim := c.claimOf(o); claim != nil {
			return claim, wellknown.EventProvisioningFailed
		}
		return nil, ""
	}
	if object := c.gatherer.Caches.Volume(o.Volume); object != nil {
		return object, wellknown.EventVolumeFailedDelete
	}
	return nil, ""
}
