package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// lossyLines is the number of lines that are buffered while the destination blocks.
	lossyLines = 1024
	// lossyFlush bounds Close.
	lossyFlush = time.Second
)

// lossyWriter drops lines while its buffer is full, and writes how many. A blocked log must not
// block the supervisor: stunnel blocks when the supervisor does not read its output.
type lossyWriter struct {
	lines chan []byte
	done  chan struct{} // closed when all lines are written

	mu      sync.Mutex
	dropped int  // guarded by mu
	closed  bool // guarded by mu
}

func newLossyWriter(w io.Writer) *lossyWriter {
	l := &lossyWriter{lines: make(chan []byte, lossyLines), done: make(chan struct{})}
	go l.copyTo(w)
	return l
}

// Write never blocks or fails.
func (l *lossyWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return len(p), nil
	}
	select {
	case l.lines <- append([]byte(nil), p...):
	default:
		l.dropped++
	}
	return len(p), nil
}

// Close writes the buffered lines. It gives up after lossyFlush.
func (l *lossyWriter) Close() {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.lines)
	}
	l.mu.Unlock()
	select {
	case <-l.done:
	case <-time.After(lossyFlush):
	}
}

func (l *lossyWriter) copyTo(w io.Writer) {
	defer close(l.done)
	for line := range l.lines {
		// An error of the log cannot be logged.
		_, _ = w.Write(line)
		if dropped := l.takeDropped(); dropped > 0 {
			fmt.Fprintf(w, "%d log lines were dropped because they were not read in time\n", dropped)
		}
	}
}

func (l *lossyWriter) takeDropped() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	dropped := l.dropped
	l.dropped = 0
	return dropped
}
