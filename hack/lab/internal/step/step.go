// Package step prints what the lab is doing: one line for each step with the time it took, and progress
// while a long one runs.
package step

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// progressInterval is how often the progress of a step is printed.
const progressInterval = 5 * time.Second

// Printer writes the lines. It may be used by steps that run at the same time.
type Printer struct {
	mu  sync.Mutex // protects out
	out io.Writer
}

// NewPrinter writes to out.
func NewPrinter(out io.Writer) *Printer { return &Printer{out: out} }

// Printf writes a separate line.
func (p *Printer) Printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, format+"\n", args...)
}

// Do runs one step. The last line that fn has written to its Notes is printed as progress.
func (p *Printer) Do(ctx context.Context, title string, fn func(context.Context, *Notes) error) error {
	begin := time.Now()
	notes := &Notes{}
	stop := make(chan struct{})
	var printing sync.WaitGroup
	printing.Go(func() { p.printProgress(title, begin, notes, stop) })
	err := fn(ctx, notes)
	close(stop)
	printing.Wait()
	took := time.Since(begin)
	if err != nil {
		p.Printf("%8s  %s: FAILED", seconds(took), title)
		return err
	}
	p.Printf("%8s  %s%s", seconds(took), title, notes.suffix(&notes.result))
	return nil
}

func (p *Printer) printProgress(title string, begin time.Time, notes *Notes, stop <-chan struct{}) {
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
			p.Printf("%8s  … %s%s", seconds(time.Since(begin)), title, notes.suffix(&notes.last))
		}
	}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// Notes collects the progress and the result of a step.
type Notes struct {
	mu     sync.Mutex // protects following
	last   string     // last line written
	result string     // printed when the step has finished
}

// Write keeps the last line of a program's output.
func (n *Notes) Write(b []byte) (int, error) {
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	n.mu.Lock()
	defer n.mu.Unlock()
	if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
		n.last = last
	}
	return len(b), nil
}

// Result sets what is printed after the title of the finished step.
func (n *Notes) Result(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.result = fmt.Sprintf(format, args...)
}

// suffix is a field as it is printed after the step's title.
func (n *Notes) suffix(field *string) string {
	const most = 90
	n.mu.Lock()
	defer n.mu.Unlock()
	text := []rune(*field)
	if len(text) == 0 {
		return ""
	}
	if len(text) > most {
		text = append(text[:most], '…')
	}
	return ": " + string(text)
}
