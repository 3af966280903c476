package mountjobs

import (
	"encoding/json"
	"time"

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
