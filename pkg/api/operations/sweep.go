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

// SweepReport is the termination message of a sweep Job.
type SweepReport struct {
	Swept
	// Stopped says that the sweep's time was over before everything that was due was removed.
	Stopped bool `json:"stopped,omitempty"`
	// Error is why something that was due is left.
	Error string `json:"error,omitempty"`
}

// maxErrorBytes leaves room for the rest of the report, however much JSON has to quote.
const maxErrorBytes = wellknown.MaxTerminationMessageBytes / 8

// Encode writes the report as JSON of at most 4096 bytes.
func (r SweepReport) Encode() ([]byte, error) {
	r.Error = Truncate(r.Error, maxErrorBytes)
	return marshal(r)
}

// DecodeSweepReport reads what SweepReport.Encode wrote. With an error, the report is the zero value.
func DecodeSweepReport(message []byte) (SweepReport, error) {
	var report SweepReport
	if err := json.Unmarshal(message, &report); err != nil {
		return SweepReport{}, fmt.Errorf("reading the report of a sweep: %w", err)
	}
	return report, nil
}
