// Package step prints what the lab is doing. On a terminal a line shows the steps that run; elsewhere each step has a
// line when it begins and one when it ends, with the time it took, and one a minute between.
package step

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	interval     = time.Second // between updates of a terminal's line
	lineInterval = time.Minute // between lines about one step without a terminal
)

// Printer writes the lines. It may be used by steps that run at the same time.
type Printer struct {
	mu      sync.Mutex // protects what follows
	out     io.Writer
	columns func() int // of the terminal; nil without one
	running []*running
	shown   bool // the terminal's last line is that of the running steps
}

// running is a step that has not ended.
type running struct {
	title string
	begin time.Time
	lines int // number of lines printed about it
	notes *Notes
}

// NewPrinter writes to out.
func NewPrinter(out io.Writer) *Printer { return &Printer{out: out, columns: terminal(out)} }

// Printf writes a separate line.
func (p *Printer) Printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.printf(format, args...)
	p.show()
}

// Do runs one step. The last line that fn has written to its Notes is printed as progress.
func (p *Printer) Do(ctx context.Context, title string, fn func(context.Context, *Notes) error) error {
	r := p.add(title)
	stop := make(chan struct{})
	var printing sync.WaitGroup
	printing.Go(func() { p.printProgress(r, stop) })
	err := fn(ctx, r.notes)
	close(stop)
	printing.Wait()
	p.remove(r, err)
	return err
}

func (p *Printer) add(title string) *running {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &running{title: title, begin: time.Now(), notes: &Notes{}}
	p.running = append(p.running, r)
	return r
}

func (p *Printer) remove(r *running, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = slices.DeleteFunc(p.running, func(other *running) bool { return other == r })
	end := r.notes.suffix(&r.notes.result)
	if err != nil {
		end = ": FAILED"
	}
	p.printf("%8s  %s%s", seconds(time.Since(r.begin)), r.title, end)
	p.show()
}

func (p *Printer) printProgress(r *running, stop <-chan struct{}) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
			p.progress(r)
		}
	}
}

func (p *Printer) progress(r *running) {
	p.mu.Lock()
	defer p.mu.Unlock()
	took := time.Since(r.begin)
	switch {
	case p.columns != nil:
		p.show()
	case r.lines == 0: // one that has ended by now has its last line only
		r.lines++
		p.printf("          %s …", r.title)
	case took >= time.Duration(r.lines)*lineInterval:
		r.lines++
		p.printf("%8s  … %s%s", seconds(took), r.title, r.notes.suffix(&r.notes.last))
	}
}

// printf writes a line in place of that of the running steps.
func (p *Printer) printf(format string, args ...any) {
	if p.shown {
		fmt.Fprint(p.out, eraseLine)
		p.shown = false
	}
	fmt.Fprintf(p.out, format+"\n", args...)
}

// eraseLine is of ECMA-48, 8.3.41.
const eraseLine = "\r\x1b[K"

// show writes the line of the running steps, on a terminal.
func (p *Printer) show() {
	if p.columns == nil || len(p.running) == 0 {
		return
	}
	var steps []string
	for _, r := range p.running {
		steps = append(steps, fmt.Sprintf("%s  %s%s", seconds(time.Since(r.begin)), r.title, r.notes.suffix(&r.notes.last)))
	}
	line := []rune(strings.Join(steps, " | "))
	fmt.Fprintf(p.out, "%s%s", eraseLine, string(line[:min(len(line), max(0, p.columns()-1))]))
	p.shown = true
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

// suffix returns a field as it is printed after the step's title.
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
