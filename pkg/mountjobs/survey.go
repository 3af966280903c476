package mountjobs

import (
	"encoding/json"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// SurveyRecord is how far the survey of a file system is. The root claim has the newest, and each survey Job
// the one that it was created with.
type SurveyRecord struct {
	Began time.Time `json:"began,omitzero"` // of the survey, which may take several Jobs
	// After is the path of the last volume that was counted, "" before the first.
	After string    `json:"after,omitempty"`
	Ended time.Time `json:"ended,omitzero"` // zero until every volume was counted
	// Failures are the last Jobs that have counted nothing, and Retry is when the next may begin.
	Failures int       `json:"failures,omitempty"`
	Retry    time.Time `json:"retry,omitzero"`
}

// Encode writes the record as the value of wellknown.AnnotationSurvey.
func (r SurveyRecord) Encode() string {
	r.Began, r.Ended, r.Retry = r.Began.UTC().Truncate(time.Second), r.Ended.UTC().Truncate(time.Second), r.Retry.UTC().Truncate(time.Second)
	data, err := json.Marshal(r)
	if err != nil { // a year above 9999
		return ""
	}
	return string(data)
}

// SurveyRecordOf reads the record of a root claim or a Job. One that cannot be read is the zero value: the
// next survey begins from the start.
func SurveyRecordOf(annotations map[string]string) SurveyRecord {
	var record SurveyRecord
	err := json.Unmarshal([]byte(annotations[wellknown.AnnotationSurvey]), &record)
	if err != nil || record.Failures < 0 || record.After != "" && operations.CheckPath(record.After) != nil {
		return SurveyRecord{}
	}
	return record
}

// SurveyOutcome is the result of a survey Job. It is Succeeded when every volume is counted, Finished when a
// part remains.
type SurveyOutcome struct {
	Status
	// SurveyReport is the zero value unless the Job has left one.
	operations.SurveyReport
	// Pod is the newest pod, or "".
	Pod string
}

// ReadSurvey returns the result of a survey Job. The error is ErrNotOurs.
func ReadSurvey(job *batchv1.Job, pods []*corev1.Pod, now time.Time) (SurveyOutcome, error) {
	r, err := readRun(Survey, job, pods, now)
	if err != nil {
		return SurveyOutcome{}, err
	}
	outcome := SurveyOutcome{Status: r.Status}
	if mine := podsOf(job, pods); len(mine) > 0 {
		outcome.Pod = mine[0].Name
	}
	if r.State != Finished {
		return outcome, nil
	}
	report, err := operations.DecodeSurveyReport([]byte(r.report))
	switch {
	case err != nil:
		outcome.lose(r, err)
	case report.Finished:
		outcome.State, outcome.SurveyReport, outcome.Message = Succeeded, report, ""
	default:
		outcome.SurveyReport, outcome.Message = report, quote(report.Error)
	}
	return outcome, nil
}
