package inspect

import (
	"encoding/json"
	"io"
	"time"
)

// WriteRows prints a value as JSON or YAML, or as the rows of a table, of which the first has the headings.
// It cleans the value as Write does.
func WriteRows[T any](out io.Writer, format string, value T, rows func(T) [][]string) error {
	return Write(out, format, &tabular[T]{Value: value, rows: rows}, time.Time{})
}

type tabular[T any] struct {
	Value T
	rows  func(T) [][]string
}

func (t *tabular[T]) write(w *writer, _ time.Time) { w.rows(t.rows(t.Value)) }

// MarshalJSON writes the value alone.
func (t *tabular[T]) MarshalJSON() ([]byte, error) { return json.Marshal(t.Value) }
