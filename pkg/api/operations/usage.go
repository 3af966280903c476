package operations

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Usage is what a survey has counted in a volume's directory. It is one line of a survey Job's output.
type Usage struct {
	Path string `json:"path"`
	// Bytes are those that the file server has allocated, as du counts them. A file with several hard
	// links counts once, divided among them.
	Bytes int64 `json:"bytes"`
	// Files are files and directories, with the volume's own.
	Files int64 `json:"files"`
	// Incomplete is why the numbers are too low, or "".
	Incomplete string `json:"incomplete,omitempty"`
}

// Limits of what a survey may report: more than any file system holds, and exact in a float64.
const (
	maxUsage           = 1 << 53
	maxIncompleteBytes = 256
)

// Encode writes the usage as one line of JSON, without its end.
func (u Usage) Encode() ([]byte, error) {
	u.Incomplete = Truncate(strings.ToValidUTF8(u.Incomplete, "?"), maxIncompleteBytes)
	return marshal(u)
}

// DecodeUsage reads what Encode wrote. The error says that a line is nothing of a survey.
func DecodeUsage(line []byte) (Usage, error) {
	var u Usage
	if err := json.Unmarshal(line, &u); err != nil {
		return Usage{}, fmt.Errorf("reading a line of a survey: %w", err)
	}
	if err := CheckPath(u.Path); err != nil {
		return Usage{}, fmt.Errorf("reading a line of a survey: %w", err)
	}
	if u.Bytes < 0 || u.Bytes > maxUsage || u.Files < 0 || u.Files > maxUsage {
		return Usage{}, fmt.Errorf("reading a line of a survey: %s uses %d bytes in %d files, want 0 to %d of each", u.Path, u.Bytes, u.Files, int64(maxUsage))
	}
	u.Incomplete = Truncate(u.Incomplete, maxIncompleteBytes)
	return u, nil
}

// SurveyReport is the termination message of a survey Job.
type SurveyReport struct {
	// Finished says that every volume was counted, by this Job and those before it.
	Finished bool `json:"finished"`
	// Volumes counts the lines of this Job.
	Volumes int `json:"volumes"`
	// Stopped says that the Job ended as planned, and that the next one goes on.
	Stopped bool `json:"stopped,omitempty"`
	// Error is why the survey could not go on.
	Error string `json:"error,omitempty"`
}

// Encode writes the report as JSON of at most 4096 bytes.
func (r SurveyReport) Encode() ([]byte, error) {
	r.Error = Truncate(r.Error, maxErrorBytes)
	return marshal(r)
}

// DecodeSurveyReport reads what SurveyReport.Encode wrote. With an error, the report is the zero value.
func DecodeSurveyReport(message []byte) (SurveyReport, error) {
	var report SurveyReport
	if err := json.Unmarshal(message, &report); err != nil {
		return SurveyReport{}, fmt.Errorf("reading the report of a survey: %w", err)
	}
	return report, nil
}
