package background

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// Sweep empties the trash of a file system. Each goes through the whole trash.
type Sweep struct {
	FileSystem
	Jobs  []Job         // the oldest first
	Delay time.Duration // how long trash waits for more, while there are few sweeps
	// Filled is when a mount Job first filled the trash since the newest sweep began; zero if none has.
	Filled time.Time
	// Worked is the end of the first mount Job that succeeded since then; zero if none has.
	Worked time.Time
}

const (
	// DefaultSweepDelay lets a burst of deletions end before the trash is emptied.
	DefaultSweepDelay = 10 * time.Second
	// FirstSweepDelay lets most first sweeps be those of the first deletion, and is shorter than Jobs live.
	FirstSweepDelay = 10 * time.Minute
	// NoSweep stands in place of a time where the trash has nothing to remove.
	NoSweep = "never"
	// lately bounds how far back sweeps count, of which promptSweeps begin without a longer wait.
	lately       = 10 * time.Minute
	promptSweeps = 6
	// fewVolumes is as much as a sweep finds that had better have waited for more.
	fewVolumes = 32
	// longestTrashWait bounds the wait of trash.
	longestTrashWait = 5 * time.Minute
	// longestWait, in seconds, is longer than any deleted directory is kept.
	longestWait = 200 * 365 * 24 * 60 * 60
)

// BegunSince reports whether a sweep has begun after a time, so that it removes what was in the trash then.
func BegunSince(sweeps []Job, at time.Time) bool {
	return slices.ContainsFunc(sweeps, func(sweep Job) bool { return sweep.Job.CreationTimestamp.After(at) })
}

func (s Sweep) observed() (FileSystem, []Job) { return s.FileSystem, s.Jobs }

// Next implements Task.
func (s Sweep) Next() (next Create, due time.Time) {
	due = s.recorded()
	if at := s.Filled.Add(s.trashWait()); !s.Filled.IsZero() && (due.IsZero() || at.Before(due)) {
		due = at
	}
	return Create{Kind: mountjobs.Sweep}, due
}

// trashWait returns how long trash waits for more. While volumes are deleted steadily, it doubles with each sweep that
// found little: each is a Job and a pod.
func (s Sweep) trashWait() time.Duration {
	found := 0
	for i := range s.Jobs {
		sweep := &s.Jobs[i]
		if s.Now.Sub(sweep.Job.CreationTimestamp.Time) < lately && sweep.Outcome.Task.Volumes < fewVolumes {
			found++
		}
	}
	longer := s.Delay << max(min(found-promptSweeps, 10), 0)
	return max(min(longer, longestTrashWait), s.Delay)
}

// recorded returns when the trash has something to remove by the root claim; zero is never. Of a trash of which
// nothing is known, an earlier installation may have left directories there, with times that only the trash has. A
// file system where no Job succeeded is left alone: it may have no volumes, and need not be writable.
func (s Sweep) recorded() time.Time {
	if s.Root == nil || s.Root.Annotations[wellknown.AnnotationNextSweep] == NoSweep {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, s.Root.Annotations[wellknown.AnnotationNextSweep])
	switch {
	case err == nil:
		return at
	case s.Worked.IsZero():
		return time.Time{}
	}
	return s.Worked.Add(FirstSweepDelay)
}

func (s Sweep) record(job *Job) Record {
	r, outcome := Record{Job: job, Annotation: wellknown.AnnotationNextSweep, Value: NoSweep}, job.Outcome
	if next := s.afterwards(); !next.IsZero() {
		r.Value = next.UTC().Format(time.RFC3339)
	}
	if outcome.State != mountjobs.Succeeded && !outcome.Task.GotOn() {
		r.Warnings = append(r.Warnings, Warning{wellknown.EventSweepFailed, "", fmt.Sprintf("Job %s has not emptied the trash: %s", job.Job.Name, outcome.Message)})
	}
	if unknown := outcome.Task.Unknown; unknown > 0 {
		r.Warnings = append(r.Warnings, Warning{wellknown.EventSweepFailed, "unknown", fmt.Sprintf("%d directories stay in the trash: their records cannot be read, because they were cut off or are a newer version's; mend %s/@*, or remove the directories beside them by hand", unknown, wellknown.TrashDirectory)})
	}
	return r
}

// afterwards returns when the next sweep should begin, by the newest one. The trash uses the clock of the file
// server, so what counts is how long it is until then.
func (s Sweep) afterwards() time.Time {
	newest := s.Jobs[len(s.Jobs)-1].Outcome
	if newest.State == mountjobs.Succeeded {
		if newest.Task.Next.IsZero() {
			return time.Time{}
		}
		return roundUp(s.Now.Add(time.Duration(max(min(newest.Task.NextIn, longestWait), 1)) * time.Second))
	}
	if newest.Task.GotOn() {
		return s.Now
	}
	failures := 0
	for _, sweep := range slices.Backward(s.Jobs) {
		if sweep.Outcome.State == mountjobs.Succeeded || sweep.Outcome.Task.GotOn() {
			break
		}
		failures++
	}
	return s.Now.Add(mountjobs.Backoff(wellknown.DefaultProvisionBackoff, failures))
}

// roundUp rounds up to what can be written down: a moment too early, a sweep would find that the time has not come.
func roundUp(at time.Time) time.Time { return at.Add(time.Second - 1).Truncate(time.Second) }

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
		return record, mountjobs.Later(record.Retry, s.Now)
	case requested.After(record.Began):
		return fresh, s.Now
	case s.Interval > 0 && !record.Began.After(s.Now):
		return fresh, mountjobs.Later(record.Began.Add(s.Interval), s.Now)
	case s.Interval > 0:
		return fresh, s.Now
	}
	return next, time.Time{}
}

// requested returns when a survey was last requested; zero is never. A time far ahead would cause survey after survey.
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
