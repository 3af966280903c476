// Package step tells a person what the lab is doing: one line for each step
// with the time it took, and a sign of life while a long one runs.
package step

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// quiet is how long a step may say nothing.
const quiet = 5 * time.Second

// Printer writes the lines; it may be used by steps that run at once.
type Printer struct {
	mu  sync.Mutex // protects out
	out io.Writer
}

// NewPrinter writes to out.
func NewPrinter(out io.Writer) *Printer { return &Printer{out: out} }

// Printf writes a line of its own.
func (p *Printer) Printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, format+"\n", args...)
}

// Do runs one step. What fn writes to its Notes shows up, last line only,
// in the signs of life.
func (p *Printer) Do(ctx context.Context, title string, fn func(context.Context, *Notes) error) error {
	begin := time.Now()
	notes := &Notes{}
	stop := make(chan struct{})
	var beat sync.WaitGroup
	beat.Go(func() { p.heartbeat(title, begin, notes, stop) })
	err := fn(ctx, notes)
	close(stop)
	beat.Wait()
	took := time.Since(begin)
	if err != nil {
		p.Printf("%8s  %s: FAILED", seconds(took), title)
		return err
	}
	p.Printf("%8s  %s%s", seconds(took), title, notes.result())
	return nil
}

func (p *Printer) heartbeat(title string, begin time.Time, notes *Notes, stop <-chan struct{}) {
	ticker := time.NewTicker(quiet)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
			p.Printf("%8s  … %s%s", seconds(time.Since(begin)), title, notes.latest())
		}
	}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// Notes collects what a step says of itself.
type Notes struct {
	mu   sync.Mutex // protects following
	last string     // last line written
	done string     // what the finished step is to say
}

// Write takes a program's output; the last line is kept.
func (n *Notes) Write(b []byte) (int, error) {
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	n.mu.Lock()
	defer n.mu.Unlock()
	if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
		n.last = last
	}
	return len(b), nil
}

// Result sets what the step's line says after its title.
func (n *Notes) Result(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.done = fmt.Sprintf(format, args...)
}

// Last is the last line written.
func (n *Notes) Last() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.last
}

func (n *Notes) latest() string { return suffix(n.Last()) }

func (n *Notes) result() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return suffix(n.done)
}

func suffix(s string) string {
	const most = 90
	if s == "" {
		return ""
	}
	if runes := []rune(s); len(runes) > most {
		s = string(runes[:most]) + "…"
	}
	return ": " + s
}
