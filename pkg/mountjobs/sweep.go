package mountjobs

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// SweepOutcome is the result of a sweep Job. It is Succeeded when everything that was due is removed,
// Finished when a part remains.
type SweepOutcome struct {
	Status
	// SweepReport is the zero value unless the Job has left one.
	operations.SweepReport
}

// ReadSweep returns the result of a sweep Job. The error is ErrNotOurs.
func ReadSweep(job *batchv1.Job, pods []*corev1.Pod, now time.Time) (SweepOutcome, error) {
	r, err := readRun(Sweep, job, pods, now)
	if err != nil {
		return SweepOutcome{}, err
	}
	outcome := SweepOutcome{Status: r.Status}
	if r.State == Finished {
		outcome.read(r)
	}
	return outcome, nil
}

func (o *SweepOutcome) read(r run) {
	report, err := operations.DecodeSweepReport([]byte(r.report))
	if err == nil {
		o.SweepReport, o.Message = report, quote(report.Error)
	}
	switch {
	case r.exitCode == 0:
		o.State = Succeeded
	case err != nil:
		o.lose(r, err)
	}
}

// GotOn reports whether a sweep stopped in the middle of its work: the next one should continue at once. If
// it stopped before it did anything, it should not.
func (o SweepOutcome) GotOn() bool {
	return o.State == Finished && o.Stopped && (o.Swept.Removed > 0 || o.Swept.Volumes > 0)
}
