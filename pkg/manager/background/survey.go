package background

import (
	"cmp"
	"fmt"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// Survey counts what the volumes of a file system use. It takes several Jobs if one does not come to the end.
type Survey struct {
	FileSystem
	Jobs []Job // ours and unreleased, the oldest first
	// Interval is the time between two surveys; 0 is never, unless one is requested.
	Interval time.Duration
	// Others counts the surveys of other file systems that run.
	Others func() int
}

const (
	// maxSurveys bounds the surveys that run at once.
	maxSurveys = 4
	// surveysRetry separates two checks whether one of them has ended.
	surveysRetry = 10 * time.Second
	// requestSkew bounds how far in the future a request may be: the clocks of users may be wrong.
	requestSkew = time.Minute
)

func (s Survey) observed() (FileSystem, []Job) { return s.FileSystem, s.Jobs }

// Next implements Task.
func (s Survey) Next() (next Create, due time.Time) {
	if s.Root == nil || !s.Listed {
		return next, due
	}
	if next.Survey, due = s.due(); !due.IsZero() && !due.After(s.Now) && s.Others() >= maxSurveys {
		due = s.Now.Add(surveysRetry)
	}
	next.Kind = mountjobs.Survey
	return next, due
}

// due returns when the next Job should begin, and with what; zero is never.
func (s Survey) due() (next mountjobs.SurveyRecord, at time.Time) {
	record, fresh := mountjobs.SurveyRecordOf(s.Root.Annotations), mountjobs.SurveyRecord{Began: s.Now}
	switch requested := s.requested(); {
	case !record.Began.IsZero() && record.Ended.IsZero() && !record.Began.After(s.Now.Add(requestSkew)):
		return record, laterOf(record.Retry, s.Now)
	case requested.After(record.Began):
		return fresh, s.Now
	case s.Interval > 0 && !record.Began.After(s.Now):
		return fresh, laterOf(record.Began.Add(s.Interval), s.Now)
	case s.Interval > 0:
		return fresh, s.Now
	}
	return next, time.Time{}
}

// requested returns when a survey was last requested; zero is never. A time far in the future would have one
// survey follow the other.
func (s Survey) requested() time.Time {
	at, err := time.Parse(time.RFC3339, s.Root.Annotations[wellknown.AnnotationSurveyRequested])
	if err != nil || at.After(s.Now.Add(requestSkew)) {
		return time.Time{}
	}
	return at
}

// record follows from how a Job has ended. After one that has counted anything, the survey continues at once.
func (s Survey) record(job *Job) Record {
	began := mountjobs.SurveyRecordOf(job.Job.Annotations)
	r, next := Record{Job: job, Annotation: wellknown.AnnotationSurvey}, mountjobs.SurveyRecord{Began: began.Began, After: job.Log.After}
	switch {
	case job.Outcome.State == mountjobs.Succeeded && job.Log.Drained:
		next.After, next.Ended = "", s.Now
		r.Finished = max(s.Now.Sub(began.Began), 1)
	case job.Log.After != began.After:
	default:
		next.Failures = began.Failures + 1
		next.Retry = s.Now.Add(mountjobs.Backoff(wellknown.DefaultProvisionBackoff, next.Failures))
		r.Warnings = []Warning{{wellknown.EventSurveyFailed, "", fmt.Sprintf("Job %s has counted no volume: %s",
			job.Job.Name, cmp.Or(job.Outcome.Message, "its log could not be read"))}}
	}
	r.Value = next.Encode()
	return r
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
