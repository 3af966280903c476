package jobs

import (
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/controller/lifecycle"
	"gnuthought.com/efs-stunnel/pkg/directories"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/tell"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// patience is how long a Job may stumble before people are told: a pod's first try often comes
// a moment before its claim is bound or its node's tunnel is up.
const patience = 3 * time.Second

// tellTrouble says on everything that waits for a Job what keeps it from starting.
func (c *Controller) tellTrouble(w world, running *mountJob) (again time.Duration) {
	pod := newestPod(running.pods)
	reason, message := mountjobs.Diagnose(running.job, pod, c.eventsAbout(running.job, pod))
	if reason == "" {
		return 0
	}
	if young := patience - w.now.Sub(running.job.CreationTimestamp.Time); young > 0 {
		return young
	}
	text := fmt.Sprintf("Job %s: %s", running.job.Name, message)
	for _, o := range running.outcome.Operations {
		c.tellOwner(o, text)
	}
	c.tellWaiting(w.waiting(), text)
	return 0
}

// tellNotReady says why no Job can begin, once that has lasted.
func (c *Controller) tellNotReady(w world, p plan) (again time.Duration) {
	since := p.due[0].Since
	if w.root != nil && w.root.CreationTimestamp.After(since) {
		since = w.root.CreationTimestamp.Time
	}
	if young := patience - w.now.Sub(since); young > 0 {
		return young
	}
	c.tellWaiting(p.due, "no mount Job can begin: "+p.wait)
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
	found := c.view.Caches.WarningsAbout(job.UID)
	if pod != nil {
		found = append(found, c.view.Caches.WarningsAbout(pod.UID)...)
	}
	events := make([]corev1.Event, len(found))
	for i, event := range found {
		events[i] = *event
	}
	return events
}

func (c *Controller) tellWaiting(waiting []lifecycle.Wanted, text string) {
	for _, wanted := range waiting {
		c.tellOwner(wanted.Operation, text)
	}
}

// tellOwner writes on the object that people look at: the claim of a setup, the volume of
// anything else.
func (c *Controller) tellOwner(o directories.Operation, text string) {
	if subject, reason := c.subjectOf(o); subject != nil {
		c.tell.WarnOf(subject, reason, "job", text)
	}
}

func (c *Controller) subjectOf(o directories.Operation) (subject tell.Object, reason string) {
	if (o.Kind == directories.Setup || o.Kind == directories.Restore) && !o.Adopt {
		if claim := c.claimOf(o); claim != nil {
			return claim, wellknown.EventProvisioningFailed
		}
		return nil, ""
	}
	if object := c.view.Caches.Volume(o.Volume); object != nil {
		return object, wellknown.EventVolumeFailedDelete
	}
	return nil, ""
}
