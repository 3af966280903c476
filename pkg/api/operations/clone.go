package operations

import (
	"encoding/json"
	"fmt"
)

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
