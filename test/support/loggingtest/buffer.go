// Package loggingtest has what tests read a log with.
package loggingtest

import (
	"bytes"
	"sync"
)

// Buffer is a log that can be read while it is written. The zero Buffer is empty.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

// Write adds to the log.
func (b *Buffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(line)
}

// String returns the lines so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
