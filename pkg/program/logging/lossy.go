package logging

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

const (
	lossyLines = 1024        // the number of lines that are buffered while the destination blocks
	lossyFlush = time.Second // bounds Close
)

// Lossy drops lines while its buffer is full, and writes how many. A blocked log must not block a
// program that reads the output of others: they block when it does not.
type Lossy struct {
	lines   chan []byte // a nil line ends copyTo
	dropped atomic.Int64
	done    chan struct{} // closed when copyTo has ended
}

// NewLossy makes a writer of lines to w.
func NewLossy(w io.Writer) *Lossy {
	l := &Lossy{lines: make(chan []byte, lossyLines), done: make(chan struct{})}
	go l.copyTo(w)
	return l
}

// Write never blocks or fails.
func (l *Lossy) Write(p []byte) (int, error) {
	select {
	case l.lines <- append([]byte{}, p...):
	default:
		l.dropped.Add(1)
	}
	return len(p), nil
}

// Close writes the buffered lines, and ends the writer. It gives up after lossyFlush.
func (l *Lossy) Close() {
	timeout := time.After(lossyFlush)
	select {
	case l.lines <- nil:
	case <-timeout:
		return
	}
	select {
	case <-l.done:
	case <-timeout:
	}
}

func (l *Lossy) copyTo(w io.Writer) {
	defer close(l.done)
	for line := <-l.lines; line != nil; line = <-l.lines {
		// An error of the log cannot be logged.
		_, _ = w.Write(line)
		if dropped := l.dropped.Swap(0); dropped > 0 {
			fmt.Fprintf(w, "%d log lines were dropped because they were not read in time\n", dropped)
		}
	}
}
