package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// lossyLines is how many lines wait for a writer that does not take them.
	lossyLines = 1024
	// lossyFlush bounds the wait for it at the end.
	lossyFlush = time.Second
)

// lossyWriter drops what the writer below does not take in time, and says how much it was: a
// supervisor whose log nobody reads must go on, for a stunnel stops when it cannot log.
type lossyWriter struct {
	lines chan []byte
	done  chan struct{} // closed when all is written

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

// Close writes what waits, for as long as lossyFlush.
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
		// There is nobody to tell but the log itself.
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
