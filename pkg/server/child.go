package server

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"gnuthought.com/efs-stunnel/pkg/program/loop"
	"gnuthought.com/efs-stunnel/pkg/program/process"
)

// stableAfter is the age of a process at which its death counts as the first in a row again.
const stableAfter = 10 * time.Second

// child keeps one program running.
type child struct {
	command  func() *exec.Cmd
	parse    func(line string) (slog.Level, string)
	isFatal  func(text string) bool // of a line after which the program is of no use; nil for none
	grace    time.Duration          // the time between SIGTERM and SIGKILL
	starter  process.Starter
	restarts prometheus.Counter
	log      *slog.Logger

	mu   sync.Mutex
	proc *os.Process // guarded by mu; nil while none runs
}

// run starts the program whenever it does not run, until the context ends, and stops it then.
func (c *child) run(ctx context.Context) {
	deaths := 0
	for {
		began := time.Now()
		exitStatus := c.runOnce(ctx)
		if ctx.Err() != nil {
			c.log.Info("program stopped", "exitStatus", exitStatus)
			return
		}
		if time.Since(began) >= stableAfter {
			deaths = 0
		}
		deaths++
		delay := process.RestartDelay(deaths)
		c.log.Error("program exited unexpectedly; starting it again", "exitStatus", exitStatus, "requeueAfter", delay)
		c.restarts.Inc()
		if !loop.Pause(ctx, delay) {
			return
		}
	}
}

func (c *child) runOnce(ctx context.Context) (exitStatus string) {
	exited := make(chan string, 1)
	if err := c.start(exited); err != nil {
		return err.Error()
	}
	c.log.Info("program started")
	select {
	case exitStatus = <-exited:
		return exitStatus
	case <-ctx.Done():
		return c.stop(exited)
	}
}

// start holds the lock until the process is known, so that none of its own is reaped as an orphan.
func (c *child) start(exited chan<- string) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.proc, err = c.starter.Start(c.command(), c.logLine, func(exitStatus string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.proc = nil
		exited <- exitStatus
	})
	return err
}

func (c *child) stop(exited <-chan string) (exitStatus string) {
	c.signal(syscall.SIGTERM)
	select {
	case exitStatus = <-exited:
		return exitStatus
	case <-time.After(c.grace):
	}
	c.log.Warn("program does not end; killing it", "duration", c.grace)
	c.signal(syscall.SIGKILL)
	return <-exited
}

// signal sends a signal to the process, if there is one.
func (c *child) signal(signal os.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proc != nil {
		_ = c.proc.Signal(signal) // an error says that the process has exited, which is reported, too
	}
}

// isRunning reports whether a process id is the program's.
func (c *child) isRunning(pid int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.proc != nil && c.proc.Pid == pid
}

func (c *child) logLine(line string) {
	level, text := c.parse(line)
	c.log.Log(context.Background(), level, "program logged", "line", text)
	if c.isFatal != nil && c.isFatal(text) {
		c.signal(syscall.SIGKILL)
	}
}

func parseStunnel(line string) (slog.Level, string) {
	level, _, text := process.ParseStunnel(line)
	return level, text
}

// ganeshaLine is a line of Ganesha's log: after date, epoch, host, program and thread come the function, the
// component and the level.
var ganeshaLine = regexp.MustCompile(`^\S+ \S+ : epoch \S+ : .*? : \S+-\d+\[[^\]]*\] (\S+ :[^:]+ :)([A-Z_]+) *:(.*)$`)

func parseGanesha(line string) (slog.Level, string) {
	found := ganeshaLine.FindStringSubmatch(line)
	if found == nil {
		return slog.LevelWarn, line // of another program, such as the dynamic loader
	}
	text := found[1] + found[3]
	switch level := found[2]; {
	case usualInPod.MatchString(text):
		return slog.LevelDebug, text
	case level == "FATAL", level == "MAJ", level == "CRIT":
		return slog.LevelError, text
	case level == "WARN":
		return slog.LevelWarn, text
	}
	return slog.LevelDebug, text
}

// usualInPod are lines of every start: there is no bus, no portmapper and no IPv6, one capability is missing, and
// some settings have defaults that are deprecated.
var usualInPod = regexp.MustCompile(`:DBUS :|Cannot register NFS V4|PR_SET_IO_FLUSHER|RADOS|may not have V6|^nfs_set_param_from_conf :NFS STARTUP :(domainname|Use )`)

// servesNothing recognizes the line after which Ganesha answers, but has no export.
func servesNothing(text string) bool { return strings.Contains(text, "No export entries found") }
