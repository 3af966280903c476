// Package jsonfile reads and writes files that hold one JSON value.
package jsonfile

import (
	"encoding/json"
	"fmt"
	"os"
)

// Read decodes a file. The error of a missing file is os.ErrNotExist.
func Read[T any](file string) (T, error) {
	var value, none T
	data, err := os.ReadFile(file)
	if err != nil {
		return none, err
	}
	if err := json.Unmarshal(data, &value); err != nil {
		return none, fmt.Errorf("decoding %s: %w", file, err)
	}
	return value, nil
}

// Write replaces a file in one step: after a crash it has the old content or the new one.
func Write(file string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", file, err)
	}
	tmp := file + ".tmp"
	if err := os.WriteFile(tmp, append(data, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, file)
}
