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
