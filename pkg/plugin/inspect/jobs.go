package inspect

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// Causes about Jobs. What keeps a Job from starting has the name of its mountjobs.Reason.
const (
	JobStuck      Cause = "JobStuck"
	JobLost       Cause = "JobLost"
	JobUnreadable Cause = "JobUnreadable"
	JobRuns       Cause = "JobRuns"
	SweepFailed   Cause = wellknown.EventSweepFailed
	SurveyFailed  Cause = wellknown.EventSurveyFailed
)

// checkJobs is about the newest Job of each kind and file system: what an older one left is repeated.
func (f *facts) checkJobs() []Result {
	var results []Result
	seen := map[string]bool{}
	for _, j := range f.jobs {
		name := j.status.Name
		newest := string(name.Kind) + name.FileSystemID
		if seen[newest] {
			continue
		}
		seen[newest] = true
		results = append(results, f.checkJob(j).ofFileSystem(name.FileSystemID))
	}
	results = append(results, f.failedJobs(mountjobs.Sweep, SweepFailed)...)
	results = append(results, f.failedJobs(mountjobs.Survey, SurveyFailed)...)
	return results
}

func (f *facts) checkJob(j jobFacts) Result {
	object := "job " + j.job.Name
	see := fmt.Sprintf("kubectl -n %s describe job %s", f.Namespace, j.job.Name)
	switch {
	case j.err != nil:
		return problem(JobUnreadable, object, j.err.Error(), "apply manager and mount Jobs of one version; "+see)
	case j.reason != "":
		return problem(Cause(j.reason), object, j.message, see)
	case j.status.State == mountjobs.Stuck:
		return problem(JobStuck, object, j.status.Message,
			fmt.Sprintf("see the pod's node %s: a dead mount keeps it; the operations run again in the next Job", j.status.Node))
	case j.status.State == mountjobs.Lost && mountjobs.IsUnreleased(j.job): // After that a later Job has what is still wanted.
		return problem(JobLost, object, j.status.Message, "none: its operations are repeated; "+see)
	case j.status.State == mountjobs.Running:
		return note(JobRuns, object, "runs"+onNode(j.status.Node))
	}
	return fine(object, "%s", join(string(j.status.State), j.status.Message))
}

func onNode(node string) string {
	if node == "" {
		return ""
	}
	return " on node " + node
}

// failedJobs are those of the last half hour that events on root claims report; a newer Job is in checkJobs.
func (f *facts) failedJobs(kind mountjobs.Kind, cause Cause) []Result {
	var results []Result
	for _, claim := range f.Claims {
		if !f.isRoot(claim) {
			continue
		}
		id := claim.Name[len(wellknown.RootVolumePrefix):]
		event, ok := f.newestOf("PersistentVolumeClaim", claim, string(cause))
		counted := kind == mountjobs.Survey && mountjobs.SurveyRecordOf(claim.Annotations).Ended.After(LastSeen(event))
		if ok && !counted && !f.hasSucceeded(kind, id, LastSeen(event)) {
			results = append(results, problem(cause, "file system "+id, event.Message,
				fmt.Sprintf("the log of the Job %s%s-…; it is retried", kind, id)).ofFileSystem(id))
		}
	}
	return results
}

// hasSucceeded says whether a Job of a kind and file system has succeeded since.
func (f *facts) hasSucceeded(kind mountjobs.Kind, id string, since time.Time) bool {
	return slices.ContainsFunc(f.jobs, func(j jobFacts) bool {
		return j.status.Name.Kind == kind && j.status.Name.FileSystemID == id && j.status.State == mountjobs.Succeeded && j.status.Ended.After(since)
	})
}

// newestOf finds the newest of our events about an object with a reason, if its cause may last.
func (f *facts) newestOf(kind string, object metav1.Object, reason string) (event corev1.Event, ok bool) {
	for _, event := range f.eventsOf(kind, object) {
		if isOurs(event) && event.Reason == reason {
			return event, f.Now.Sub(LastSeen(event)) < repeated
		}
	}
	return event, false
}

// newest finds the newest of our events about an object, if it has one of the reasons and its cause may
// last.
func (f *facts) newest(kind string, object metav1.Object, reasons ...string) (event corev1.Event, ok bool) {
	for _, event := range f.eventsOf(kind, object) {
		if isOurs(event) {
			return event, slices.Contains(reasons, event.Reason) && f.Now.Sub(LastSeen(event)) < repeated
		}
	}
	return event, false
}
