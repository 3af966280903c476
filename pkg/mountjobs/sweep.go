package mountjobs

import (
	"encoding/json"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/operations"
)

// SweepOutcome is a sweep Job read back.
type SweepOutcome struct {
	Name    Name
	State   State // Succeeded: what was due is gone; Finished: some of it is left
	Node    string
	Ended   time.Time
	Until   time.Time // as in Outcome
	Overdue bool      // as in Outcome
	// Swept is the zero value unless the Job has told.
	Swept operations.Swept
	// Stopped says that its time was over first.
	Stopped bool
	Message string
}

// sweepReport is the termination message of mountjob sweep. pkg/mountjob writes it; both are
// tested on testdata/sweep-report.json.
type sweepReport struct {
	operations.Swept
	// Stopped says that its time was over before all that was due was gone.
	Stopped bool `json:"stopped,omitempty"`
	// Error is why some of what was due is left.
	Error string `json:"error,omitempty"`
}

// ReadSweep says what became of a sweep Job. The error is ErrNotOurs.
func ReadSweep(job *batchv1.Job, pods []*corev1.Pod, now time.Time) (SweepOutcome, error) {
	name, err := Identify(job)
	if err == nil && name.Kind != Sweep {
		err = fmt.Errorf("reading Job %s: %w: it is no sweep Job", job.Name, ErrNotOurs)
	}
	if err != nil {
		return SweepOutcome{}, err
	}
	r := observe(job, pods, now)
	outcome := SweepOutcome{Name: name, Node: r.node, Ended: r.ended, Until: r.until, Overdue: r.overdue, Message: r.why}
	switch r.phase {
	case goesOn:
		outcome.State = Running
	case hung:
		outcome.State = Stuck
	case vanished:
		outcome.State = Lost
	case exited:
		outcome.read(r)
	}
	return outcome, nil
}

func (o *SweepOutcome) read(r run) {
	var report sweepReport
	readable := json.Unmarshal([]byte(r.message), &report) == nil
	if readable {
		o.Swept, o.Stopped, o.Message = report.Swept, report.Stopped, words(report.Error)
	}
	switch {
	case r.exitCode == 0:
		o.State = Succeeded
	case readable:
		o.State = Finished
	default:
		o.State = Lost
		o.Message = r.withoutReport()
	}
}

// HoldsFileSystem says whether another sweep must wait for this one. Mount Jobs never do.
func (o SweepOutcome) HoldsFileSystem() bool { return o.State == Running }

// GotOn says that a sweep had to stop in the middle of its work: the next one should go on with it
// at once. One that was stopped before it did anything only tells that something is wrong.
func (o SweepOutcome) GotOn() bool {
	return o.State == Finished && o.Stopped && (o.Swept.Removed > 0 || o.Swept.Volumes > 0 || o.Swept.Indexed > 0)
}
