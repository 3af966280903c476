package operations

import (
	"encoding/json"
	"fmt"
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
