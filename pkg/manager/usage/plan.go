package usage

import (
	"cmp"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// state is what was observed of one file system.
type state struct {
	id    string
	now   time.Time
	named []*batchv1.Job // all that have the file system in their name, for the next number
	// surveys are ours and unreleased, the oldest first.
	surveys []surveyJob
	// others are the survey Jobs of other file systems that run.
	others int
	// notReady is why no Job may use the root claim now, or "".
	notReady string
	root     *corev1.PersistentVolumeClaim // nil if there is none
	// listed says that the table has the file system.
	listed bool
	// interval is the time between two surveys; 0 is never, unless one is requested.
	interval time.Duration
}

type surveyJob struct {
	job     *batchv1.Job
	outcome mountjobs.SurveyOutcome
	// stuck says that it cannot start, and keeps the root claim from being replaced.
	stuck bool
	// after is the path of the last volume that is known to be counted.
	after string
	// read is when its log was read last, zero for never; drained says that it was read to its end, and
	// unreadable that reading it has failed for long.
	read                time.Time
	drained, unreadable bool
}

// plan is the one next step on a file system, and when to plan again although nothing has happened: nil and
// zero are to wait for a change.
type plan struct {
	change change
	again  time.Time
}

// change is one of the types below.
type change any

type (
	// readLog reads what a Job has counted since its log was read last.
	readLog struct{ survey *surveyJob }
	// recordSurvey records how far the survey is, and releases the Job; failed is why it has counted
	// nothing, or "".
	recordSurvey struct {
		job    *batchv1.Job
		next   mountjobs.SurveyRecord
		failed string
	}
	// createSurvey creates the next Job, which continues where the record says.
	createSurvey struct{ next mountjobs.SurveyRecord }
	// endSurvey has the cluster end a Job whose pod keeps the root claim from being replaced.
	endSurvey struct{ job *batchv1.Job }
	// deleteSurvey deletes a running Job of a file system that is gone.
	deleteSurvey struct{ job *batchv1.Job }
)

const (
	// readInterval is the time between two reads of the log of a Job that runs: if its pod is killed, and
	// its log lost, no more than this is counted again.
	readInterval = 30 * time.Second
	// readTries is how long the log of a Job that has ended is tried to be read.
	readTries = 2 * time.Minute
	// maxSurveys bounds the surveys that run at once.
	maxSurveys = 4
	// surveysRetry is when to check again whether one of them has ended, or the root volume is as it should be.
	surveysRetry = 10 * time.Second
	// requestSkew is how far in the future a request may be: the clocks of users may be wrong.
	requestSkew = time.Minute
)

// planFor plans for one file system.
//
//	oldest survey Job   file system  what is done
//	running             gone         the Job is deleted
//	cannot start        any          the Job is ended
//	running             any          its log is read at intervals
//	ended               any          its log is read to the end; the outcome is recorded, and the Job released
//	ended, without pod  root replaced nothing, until there is another root claim
//	none                survey due   the next Job, if few run on other file systems
//	none                any          nothing, until a survey is due
func planFor(s state) plan {
	if len(s.surveys) == 0 {
		return s.planNext()
	}
	survey := &s.surveys[0]
	switch {
	case survey.outcome.HoldsFileSystem() && !s.listed:
		return plan{change: deleteSurvey{survey.job}}
	case survey.outcome.HoldsFileSystem() && survey.stuck:
		return plan{change: endSurvey{survey.job}, again: survey.outcome.Until}
	case survey.outcome.HoldsFileSystem() && survey.outcome.Pod == "":
		return plan{again: survey.outcome.Until}
	case survey.outcome.HoldsFileSystem():
		if next := survey.read.Add(readInterval); next.After(s.now) {
			return plan{again: next}
		}
		return plan{change: readLog{survey}}
	case !survey.drained && !survey.unreadable && survey.outcome.Pod != "":
		return plan{change: readLog{survey}}
	case survey.outcome.Pod == "" && s.listed && (s.root == nil || s.root.DeletionTimestamp != nil):
		return plan{again: s.now.Add(surveysRetry)} // what it has counted is recorded on the next root claim
	}
	return plan{change: s.record(survey)}
}

// record follows from how a Job has ended. After one that has counted anything, the survey continues at once.
func (s state) record(survey *surveyJob) recordSurvey {
	began := mountjobs.SurveyRecordOf(survey.job.Annotations)
	r := recordSurvey{job: survey.job, next: mountjobs.SurveyRecord{Began: began.Began, After: survey.after}}
	switch {
	case survey.outcome.State == mountjobs.Succeeded && survey.drained:
		r.next.After, r.next.Ended = "", s.now
	case survey.after != began.After:
	default:
		r.failed = cmp.Or(survey.outcome.Message, "its log could not be read")
		r.next.Failures = began.Failures + 1
		r.next.Retry = s.now.Add(mountjobs.Backoff(wellknown.DefaultProvisionBackoff, r.next.Failures))
	}
	return r
}

// planNext begins a survey, or continues one.
func (s state) planNext() plan {
	due, next := s.due()
	switch {
	case due.IsZero() || !s.listed:
		return plan{}
	case due.After(s.now):
		return plan{again: due}
	case s.notReady != "" || s.others >= maxSurveys: // of the root volume no event tells this loop
		return plan{again: s.now.Add(surveysRetry)}
	}
	return plan{change: createSurvey{next}}
}

// due is when the next Job should begin, and with what; zero is never.
func (s state) due() (at time.Time, next mountjobs.SurveyRecord) {
	if s.root == nil {
		return time.Time{}, next
	}
	record := mountjobs.SurveyRecordOf(s.root.Annotations)
	fresh := mountjobs.SurveyRecord{Began: s.now}
	switch requested := s.requested(); {
	case !record.Began.IsZero() && record.Ended.IsZero() && !record.Began.After(s.now.Add(requestSkew)):
		return laterOf(record.Retry, s.now), record
	case requested.After(record.Began):
		return s.now, fresh
	case s.interval > 0 && !record.Began.After(s.now):
		return laterOf(record.Began.Add(s.interval), s.now), fresh
	case s.interval > 0:
		return s.now, fresh
	}
	return time.Time{}, next
}

// requested is when a survey was last requested; zero is never. A time far in the future would have one
// survey follow the other.
func (s state) requested() time.Time {
	at, err := time.Parse(time.RFC3339, s.root.Annotations[wellknown.AnnotationSurveyRequested])
	if err != nil || at.After(s.now.Add(requestSkew)) {
		return time.Time{}
	}
	return at
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
