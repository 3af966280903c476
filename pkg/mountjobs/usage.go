package mountjobs

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// UsageRecord is the last count of a claim's directory. It is an annotation of the claim.
type UsageRecord struct {
	Bytes int64 `json:"bytes"`
	Files int64 `json:"files"`
	// At is when it was counted.
	At time.Time `json:"at"`
	// Incomplete is why the numbers are too low, or "".
	Incomplete string `json:"incomplete,omitempty"`
	// OverRequest says that an event has reported that the bytes are more than the claim requests.
	OverRequest bool `json:"overRequest,omitempty"`
}

// NewUsageRecord returns the record of what a survey has counted.
func NewUsageRecord(usage operations.Usage, at time.Time) UsageRecord {
	return UsageRecord{Bytes: usage.Bytes, Files: usage.Files, At: at.UTC().Truncate(time.Second), Incomplete: usage.Incomplete}
}

// ParseUsage reads the annotation of a claim. ok is false if it cannot be read: users may edit it.
func ParseUsage(text string) (record UsageRecord, ok bool) {
	if json.Unmarshal([]byte(text), &record) != nil || record.Bytes < 0 || record.Files < 0 || record.At.IsZero() {
		return UsageRecord{}, false
	}
	return record, true
}

// Encode writes the record as the value of the annotation.
func (r UsageRecord) Encode() string { return encode(r) }

// encode returns the JSON of a record, or "" if a time in it has a year above 9999.
func encode(record any) string {
	data, _ := json.Marshal(record)
	return string(data)
}

// IsOver reports whether a claim's directory holds more than the claim requests.
func (r UsageRecord) IsOver(claim *corev1.PersistentVolumeClaim) bool {
	requested := Requested(claim)
	return requested > 0 && r.Bytes > requested
}

// Requested returns the size that a claim requests, in bytes.
func Requested(claim *corev1.PersistentVolumeClaim) int64 {
	return claim.Spec.Resources.Requests.Storage().Value()
}

const (
	// usageNoise is the part of a number by which a record may be wrong.
	usageNoise = 100
	// usageAge is the age at which a record is replaced although its numbers hardly change.
	usageAge = 24 * time.Hour
)

// Update returns the record that a claim should have, given what was counted last and whether that is known. ok is
// false if its present one is good enough: each change is a write, and all who watch claims read it.
func (r UsageRecord) Update(claim *corev1.PersistentVolumeClaim, counted UsageRecord) (next UsageRecord, ok bool) {
	counted.OverRequest = counted.IsOver(claim)
	stale := counted.OverRequest != r.OverRequest || counted.Incomplete != r.Incomplete ||
		differs(r.Bytes, counted.Bytes) || differs(r.Files, counted.Files) || counted.At.Sub(r.At).Abs() >= usageAge
	return counted, stale
}

// differs reports whether a number has changed by more than noise.
func differs(before, now int64) bool {
	return max(before, now)-min(before, now) > before/usageNoise
}
