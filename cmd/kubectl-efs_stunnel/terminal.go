package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"gnuthought.com/efs-stunnel/pkg/plugin/inspect"
)

// colorsOf colors what is written to a terminal, unless the user's environment says that it has no colors.
func colorsOf(out io.Writer) io.Writer {
	file, ok := out.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return out
	}
	if info, err := file.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return out
	}
	return colored{out}
}

// colored colors the levels at the beginning of lines. Objects have no control over it: their texts never
// begin a line with such a word.
type colored struct{ out io.Writer }

const noColor = "\x1b[0m"

func colors() map[string]string {
	return map[string]string{
		levelWord(inspect.Problem): "\x1b[1;31m", // bold red
		levelWord(inspect.Unknown): "\x1b[1;33m", // bold yellow
		levelWord(inspect.Note):    "\x1b[1;36m", // bold cyan
	}
}

// levelWord returns the first word of a result in reports.
func levelWord(level inspect.Level) string { return strings.ToUpper(string(level)) }

// Write expects whole reports.
func (c colored) Write(text []byte) (int, error) {
	var painted bytes.Buffer
	for line := range bytes.Lines(text) {
		word, rest, _ := bytes.Cut(line, []byte(" "))
		if color, ok := colors()[string(word)]; ok {
			painted.WriteString(color + string(word) + noColor + " ")
			line = rest
		}
		painted.Write(line)
	}
	if _, err := c.out.Write(painted.Bytes()); err != nil {
		return 0, err
	}
	return len(text), nil
}

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
