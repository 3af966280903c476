package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// child is a program that this one started and ends.
type child struct {
	cmd   *exec.Cmd
	begun time.Time
	ended chan struct{} // closed when it is over, and its log is complete

	mu       sync.Mutex
	lines    []line        // guarded by mu; its log
	nextLine chan struct{} // guarded by mu; closed with the next line
}

type line struct {
	at   time.Time
	text string
}

// startChild starts a program that the kernel kills when this one ends, however it does. Its
// environment is that of this program with what is added to it.
func startChild(ctx context.Context, command, environment []string) (*child, error) {
	c := &child{
		cmd:   exec.CommandContext(context.WithoutCancel(ctx), command[0], command[1:]...),
		ended: make(chan struct{}), nextLine: make(chan struct{}),
	}
	c.cmd.Env = append(os.Environ(), environment...)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := c.cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("reading the log of %s: %w", command[0], err)
	}
	c.begun = time.Now()
	outcome := make(chan error)
	go c.run(log, outcome)
	if err := <-outcome; err != nil {
		return nil, fmt.Errorf("starting %s: %w", command[0], err)
	}
	return c, nil
}

// run keeps its thread as long as the program lives: the kernel kills the program when the
// thread ends that started it.
func (c *child) run(log io.Reader, outcome chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := c.cmd.Start()
	outcome <- err
	if err != nil {
		return
	}
	defer close(c.ended)
	for scanner := bufio.NewScanner(log); scanner.Scan(); {
		c.add(scanner.Text())
	}
	_ = c.cmd.Wait() // how it ended is in its log, and often our own doing
}

func (c *child) add(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, line{time.Now(), text})
	close(c.nextLine)
	c.nextLine = make(chan struct{})
}

// loggedAt is when the program logged a line with the words; zero if it has not.
func (c *child) loggedAt(words string) (at time.Time, nextLine <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.lines, func(l line) bool { return strings.Contains(l.text, words) })
	if i >= 0 {
		at = c.lines[i].at
	}
	return at, c.nextLine
}

// awaitLine waits until the program has logged a line with the words, and returns when it did.
func (c *child) awaitLine(ctx context.Context, words string) (time.Time, error) {
	for {
		at, nextLine := c.loggedAt(words)
		if !at.IsZero() {
			return at, nil
		}
		select {
		case <-nextLine:
		case <-c.ended:
			return time.Time{}, fmt.Errorf("%s ended before it logged %q\n%s", c.name(), words, c.tail())
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("waiting for %s to log %q: %w\n%s", c.name(), words, context.Cause(ctx), c.tail())
		}
	}
}

func (c *child) name() string { return filepath.Base(c.cmd.Path) }

func (c *child) tail() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var text strings.Builder
	for _, l := range c.lines[max(0, len(c.lines)-20):] {
		text.WriteString(l.text + "\n")
	}
	return text.String()
}

// end sends a signal and waits for the end.
func (c *child) end(signal os.Signal) error {
	if err := c.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("ending %s: %w", c.name(), err)
	}
	select {
	case <-c.ended:
		return nil
	case <-time.After(stepTimeout):
		return fmt.Errorf("%s does not end\n%s", c.name(), c.tail())
	}
}
