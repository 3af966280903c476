package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// quiet is the time in which no progress is printed.
const quiet = 2 * time.Second

// progress prints the present step of a command that takes longer than a user waits without a word.
type progress struct {
	out   io.Writer
	timer *time.Timer

	mu      sync.Mutex
	current string // guarded by mu
	late    bool   // guarded by mu
	ended   bool   // guarded by mu
}

func newProgress(out io.Writer) *progress {
	p := &progress{out: out}
	p.timer = time.AfterFunc(quiet, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.late = true
		p.print()
	})
	return p
}

// step begins the next step.
func (p *progress) step(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current = text
	if p.late {
		p.print()
	}
}

func (p *progress) print() { // with mu
	if p.current != "" && !p.ended {
		fmt.Fprintln(p.out, p.current+" …")
	}
}

// stop may be called more than once.
func (p *progress) stop() {
	p.timer.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
}
