package operations

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Swept counts what a sweep has removed, and what is left in the trash.
type Swept struct {
	// Removed counts files and directories.
	Removed int64 `json:"removed"`
	// Volumes counts the volumes' directories whose time in the trash was over.
	Volumes int `json:"volumes"`
	// Kept counts the volumes' directories that stay in the trash.
	Kept int `json:"kept"`
	// Unknown counts those among them that stay forever, because their record cannot be read.
	Unknown int `json:"unknown,omitempty"`
	// Next is when the next directory may be removed, by the file server's clock; zero is never.
	Next time.Time `json:"next,omitzero"`
	// NextIn is Next in seconds from the start of the sweep, for readers with another clock.
	NextIn int64 `json:"nextInSeconds,omitempty"`
}

// TaskReport is the termination message of a sweep Job or a survey Job. All that was due is done, unless the Job
// was stopped or met an error.
type TaskReport struct {
	Swept // by a sweep
	// Counted counts the volumes that a survey has written lines about.
	Counted int `json:"counted,omitempty"`
	// Stopped says that its time was over, or its log full, and that the next Job goes on.
	Stopped bool `json:"stopped,omitempty"`
	// Error is why something that was due is left.
	Error string `json:"error,omitempty"`
}

// maxErrorBytes leaves room for the rest of the report, however much JSON has to quote.
const maxErrorBytes = wellknown.MaxTerminationMessageBytes / 8

// Encode writes the report as JSON of at most 4096 bytes.
func (r TaskReport) Encode() ([]byte, error) {
	r.Error = Truncate(r.Error, maxErrorBytes)
	return marshal(r)
}

// DecodeTaskReport reads what TaskReport.Encode wrote. With an error, the report is the zero value.
func DecodeTaskReport(message []byte) (TaskReport, error) {
	var report TaskReport
	if err := json.Unmarshal(message, &report); err != nil {
		return TaskReport{}, fmt.Errorf("reading the report of a task: %w", err)
	}
	return report, nil
}

// Succeeded reports whether all that was due is done.
func (r TaskReport) Succeeded() bool { return !r.Stopped && r.Error == "" }

// GotOn reports whether a sweep stopped in the middle of its work: the next one should continue at once. If it
// stopped before it did anything, it should not.
func (r TaskReport) GotOn() bool {
	return r.Stopped && (r.Removed > 0 || r.Volumes > 0)
}

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

// CloneProgress is how far a clone is. It is one line of a clone Job's output.
type CloneProgress struct {
	// Files are files, directories and all else that is complete in the copy; Found are those that were found
	// in the source so far.
	Files int64 `json:"files"`
	Found int64 `json:"found"`
	Bytes int64 `json:"bytes"`
}

// Encode writes the progress as one line of JSON, without its end.
func (p CloneProgress) Encode() ([]byte, error) { return marshal(p) }

// DecodeCloneProgress reads what Encode wrote. The error says that a line is nothing of a clone.
func DecodeCloneProgress(line []byte) (CloneProgress, error) {
	var p CloneProgress
	if err := json.Unmarshal(line, &p); err != nil {
		return CloneProgress{}, fmt.Errorf("reading a line of a clone: %w", err)
	}
	if p.Files < 0 || p.Found < p.Files || p.Bytes < 0 {
		return CloneProgress{}, fmt.Errorf("reading a line of a clone: %d of %d files and %d bytes are no progress", p.Files, p.Found, p.Bytes)
	}
	return p, nil
}
