// Package background plans the life of the Jobs that run beside a file system's mount Jobs. A task, which is a sweep
// or a survey, has one Job at a time:
//
//	due --Create--> Job --runs, its log is read--> ended --Record--> what the root claim says --Release--> due
//
// All is decided without side effects, but for Logs. The loop of jobs observes, and carries out the steps. Mount Jobs
// and clone Jobs, whose outcome the claims loop uses, are released and ended by the same steps.
package background

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// FileSystem holds the observed state of a file system.
type FileSystem struct {
	ID  string
	Now time.Time
	// Root and RootVolume have what was recorded; nil if they do not exist.
	Root       *corev1.PersistentVolumeClaim
	RootVolume *corev1.PersistentVolume
	// NotReady is why no Job may use the root claim now, or "".
	NotReady string
	// Listed says that the table has the file system, and Gone that it has not, and the root claim is being deleted.
	Listed, Gone bool
}

// Job pairs a Kubernetes Job of a task with its outcome.
type Job struct {
	Job        *batchv1.Job
	Pods       []*corev1.Pod
	Outcome    mountjobs.Outcome
	Unreleased bool // it still has the finalizer
	Log        Log
}

// Steps in the life of a Job.
type (
	// Create creates the next Job of a kind. A survey continues where the record says.
	Create struct {
		Kind   mountjobs.Kind
		Survey mountjobs.SurveyRecord
	}
	// ReadLog reads what a Job has logged since its log was read last.
	ReadLog struct{ Job *Job }
	// Record writes an annotation of root claim and root volume, and then releases the Job.
	Record struct {
		Job               *Job
		Annotation, Value string
		Warnings          []Warning
		// Finished is how long a survey took of which nothing is left; 0 if it is not finished.
		Finished time.Duration
	}
	// Release releases a Job of which nothing more is needed.
	Release struct {
		Job          *batchv1.Job
		Unsuccessful bool // some of its operations are not done
	}
	// End has the cluster end a running Job: it finds no node among those that it may use, its pod keeps the root
	// claim from being replaced, or nothing needs its copy.
	End struct{ Job *batchv1.Job }
	// Delete deletes a running Job of a file system that is gone, whose pods keep the root claim from being deleted.
	Delete struct{ Job *batchv1.Job }
)

// Warning is an event on the root claim. One of the same reason and key is not repeated for a while.
type Warning struct{ Reason, Key, Message string }

// Task is a Sweep or a Survey.
type Task interface {
	// Next returns the next Job, and when it should begin; zero is never.
	Next() (next Create, due time.Time)
	// record returns what is recorded of a Job that has ended.
	record(job *Job) Record
	observed() (FileSystem, []Job)
}

// Plan collects what is to be done on a file system.
type Plan struct {
	Steps []any     // applied in their order; none depends on the success of another
	Again time.Time // when to plan again although nothing has happened; zero is never
}

// Add adds a step.
func (p *Plan) Add(step any) { p.Steps = append(p.Steps, step) }

// Recheck plans again at a time, unless that is zero.
func (p *Plan) Recheck(at time.Time) {
	if !at.IsZero() && (p.Again.IsZero() || at.Before(p.Again)) {
		p.Again = at
	}
}

// IsDue reports whether a time has come, and plans again when it does.
func (p *Plan) IsDue(at, now time.Time) bool {
	if at.After(now) {
		p.Recheck(at)
		return false
	}
	return true
}

// AddTask adds the steps of a task.
//
//	Job                 file system, root claim       what is done
//	running             it has left the table         the Job is deleted
//	running, not begun  the root claim has no volume  the Job is ended
//	running             any                           the log of a survey is read at intervals
//	ended               any                           the log of a survey is read to its end, then:
//	ended, the newest   to be created again           nothing, until then
//	ended, the newest   any                           its outcome is recorded, then it is released
//	ended, older        any                           it is released: what it has found is out of date
//	none                ready                         the next Job, when it is due
func (p *Plan) AddTask(t Task) {
	fs, jobs := t.observed()
	for i := range jobs {
		switch job := &jobs[i]; {
		case job.Outcome.HoldsFileSystem() && fs.Gone:
			p.Add(Delete{job.Job})
		case job.Outcome.HoldsFileSystem():
			p.running(fs, job)
			return
		case !job.Unreleased:
		case i < len(jobs)-1:
			p.Add(Release{Job: job.Job})
		default:
			p.ended(fs, t, job)
			return
		}
	}
	next, due := t.Next()
	if due.IsZero() || fs.NotReady != "" {
		return
	}
	if p.Recheck(due); !due.After(fs.Now) {
		p.Add(next)
	}
}

func (p *Plan) running(fs FileSystem, job *Job) {
	p.Recheck(job.Outcome.Until)
	if mountjobs.CannotStart(fs.Root, job.Pods) {
		p.Add(End{job.Job})
		return
	}
	p.read(fs, job)
}

// read reports whether the log of a Job is to be read, now or later.
func (p *Plan) read(fs FileSystem, job *Job) bool {
	if job.Outcome.Name.Kind != mountjobs.Survey || job.Outcome.Pod == "" {
		return false
	}
	switch atOnce := !job.Outcome.HoldsFileSystem() && job.Log.failing.IsZero(); {
	case job.Log.Reading: // its end plans again
	case job.Log.Next.After(fs.Now) && !atOnce:
		p.Recheck(job.Log.Next)
	default:
		p.Add(ReadLog{job})
	}
	return true
}

func (p *Plan) ended(fs FileSystem, t Task, job *Job) {
	switch {
	case !job.Log.Drained && !job.Log.Unreadable && p.read(fs, job):
	case fs.Listed && fs.RootVolume == nil && (fs.Root == nil || fs.Root.DeletionTimestamp != nil && job.Outcome.Pod == ""):
		// They would be created with what they recorded before this Job, or with nothing, and what it says
		// would be lost. A claim that is being deleted waits for the pod, which goes once the Job is released.
		p.Recheck(fs.Now.Add(wellknown.DefaultProvisionBackoff))
	default:
		p.Add(t.record(job))
	}
}
