package cluster

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// program is a command line and its log.
type program struct {
	path string
	args []string
	log  string // file, appended to
}

// process is a running program; nil is one that was not started.
type process struct {
	program
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended
	err   error         // of the process; read it after ended only
}

// startProcess starts a program that the kernel kills when this process ends.
func startProcess(p program) (*process, error) {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening a log: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(p.path, p.args...) //nolint:noctx // stop ends it, or the end of this process
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	killWithParent(cmd.SysProcAttr)
	started := &process{program: p, cmd: cmd, ended: make(chan struct{})}
	outcome := make(chan error)
	go started.run(outcome)
	if err := <-outcome; err != nil {
		return nil, fmt.Errorf("starting %s: %w", filepath.Base(p.path), err)
	}
	return started, nil
}

// run keeps its thread while the program runs: the kernel kills the program when the thread that has
// started it ends.
func (p *process) run(outcome chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	outcome <- err
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
	close(p.ended)
}

// stop kills the process: what it would still write is not needed.
func (p *process) stop() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Kill() // the process may have ended
	<-p.ended
}

// failure returns an error when the process has ended.
func (p *process) failure() error {
	if p == nil {
		return nil
	}
	select {
	case <-p.ended:
		return fmt.Errorf("%s has ended: %w", p.name(), p.err)
	default:
		return nil
	}
}

func (p *process) name() string { return filepath.Base(p.path) }

// tail returns the end of its log, under its name.
func (p *process) tail(lines int) string {
	if p == nil {
		return ""
	}
	text, err := os.ReadFile(p.log)
	if err != nil {
		return fmt.Sprintf("--- %s: %v\n", p.name(), err)
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	last := all[max(len(all)-lines, 0):]
	return fmt.Sprintf("--- the last %d lines of %s:\n%s\n", len(last), p.name(), strings.Join(last, "\n"))
}

func (p *process) couldNotListen() bool {
	if p.failure() == nil {
		return false
	}
	text, err := os.ReadFile(p.log)
	return err == nil && bytes.Contains(text, []byte("address already in use"))
}

// clockTick is the unit of times in /proc/PID/stat, on every architecture of Linux.
const clockTick = 10 * time.Millisecond

// processorTime returns the processor time that the program has taken until now.
func (p *process) processorTime() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, may have spaces. The 12th and 13th field after it are utime and stime.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("reading the processor time of %s: %q", p.cmd.Path, text)
	}
	var sum int
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			return 0, fmt.Errorf("reading the processor time of %s: %w", p.cmd.Path, err)
		}
		sum += n
	}
	return time.Duration(sum) * clockTick, nil
}
