package supervise

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/program/loop"
	"gnuthought.com/efs-stunnel/pkg/program/process"
	"gnuthought.com/efs-stunnel/pkg/stunnelcfg"
)

func (s *supervisor) startProcess(file string, socket *os.File, line, exited func(string)) (*os.Process, error) {
	command := append(slices.Clone(s.options.Launcher), s.options.Stunnel, file)
	// No context: the supervisor stops processes by signals, after the context has ended.
	cmd := exec.Command(command[0], command[1:]...) //nolint:noctx // see above
	cmd.ExtraFiles = []*os.File{socket}             // becomes descriptor 3
	return s.starter.Start(cmd, line, exited)
}

// reapOrphans reaps the zombies of which the supervisor is the parent, but which it has not started.
func (s *supervisor) reapOrphans() {
	if !s.options.ReapOrphans {
		return
	}
	process.ReapOrphans(func(pid int) bool {
		return slices.ContainsFunc(slices.Collect(maps.Values(s.tunnels)), func(t *tunnel) bool { return t.proc != nil && t.proc.Pid == pid })
	})
}

const (
	queryTimeout = 30 * time.Second // bounds a query, which takes stunnel some 10 ms
	queryRetry   = time.Second      // the delay after a query during which stunnel was killed
	maxQuoted    = 300              // bounds the output that errors quote, in characters
)

// waitForFeatures queries the stunnel program until it answers or the context ends. It returns an
// error if the program lacks a required feature.
func waitForFeatures(ctx context.Context, o Options) (stunnelcfg.Features, error) {
	for {
		features, err := QueryFeatures(ctx, o.Stunnel, o.FIPS)
		if !errors.Is(err, errKilled) || ctx.Err() != nil {
			return features, err
		}
		o.Log.Warn("stunnel was killed before it reported its features; retrying", "err", err, "requeueAfter", queryRetry)
		loop.Pause(ctx, queryRetry)
	}
}

// QueryFeatures runs a stunnel program to read its version and options. It returns an error that
// quotes the program's output if the program lacks a required feature; with fips, FIPS is one.
func QueryFeatures(ctx context.Context, path string, fips bool) (stunnelcfg.Features, error) {
	var version, help string
	group, ctx := errgroup.WithContext(ctx) // tunnels wait for the answers when a supervisor restarts
	group.Go(func() (err error) { version, err = runQuery(ctx, path, "-version"); return err })
	group.Go(func() (err error) { help, err = runQuery(ctx, path, "-help"); return err })
	if err := group.Wait(); err != nil {
		return stunnelcfg.Features{}, err
	}
	features := stunnelcfg.ParseFeatures(version, help)
	if err := features.Check(fips); err != nil {
		return stunnelcfg.Features{}, fmt.Errorf("unusable stunnel %s: %w; its output is %s", path, err, quoted(version))
	}
	return features, nil
}

// errKilled says that the program took too long, or got SIGKILL, which the kernel sends when memory
// runs out. A retry may succeed.
var errKilled = errors.New("killed before it answered")

// runQuery returns the output of a query. It ignores the exit code, which differs between versions.
func runQuery(ctx context.Context, path, option string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, option)
	cmd.WaitDelay = process.OutputGrace
	text, err := cmd.CombinedOutput()
	state := cmd.ProcessState // nil if the program has not started
	switch {
	case ctx.Err() != nil, state != nil && state.Sys() == syscall.WaitStatus(syscall.SIGKILL):
		return "", fmt.Errorf("running %s %s: %w", path, option, errKilled)
	case state == nil || !state.Exited():
		return "", fmt.Errorf("running %s %s: %w; its output is %s", path, option, err, quoted(string(text)))
	}
	return string(text), nil
}

// quoted returns the beginning of a text as one quoted line.
func quoted(text string) string {
	joined := strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	return fmt.Sprintf("%.*q", maxQuoted, joined)
}

// DefaultMemoryLimit bounds the data segment of one stunnel process, in bytes. stunnel 5.68 begins with 10
// MiB, of which it uses 3, and 5.74 with 27 MiB; each connection adds some 200 KiB.
const DefaultMemoryLimit = 256 << 20

// checkMemory limits the memory of each stunnel that has begun to run, so that a leak of one does not
// take the memory of the others, and reads it at most once in a tunnelspec.StatusInterval.
func (s *supervisor) checkMemory(now time.Time) {
	for _, t := range s.tunnels {
		if t.state() != tunnelspec.StateRunning || now.Before(t.memoryAt) {
			continue // a starting process may still be the launcher, a Go program that needs more
		}
		if t.memoryAt.IsZero() {
			err := s.limitMemory(t.proc.Pid, s.options.MemoryLimit)
			if err != nil && !errors.Is(err, unix.ESRCH) {
				s.logFor(t).Warn("limiting the memory of stunnel failed", "err", err)
			}
		}
		t.memoryAt = now.Add(tunnelspec.StatusInterval)
		if t.front != nil {
			t.reported.Lanes = t.front.Status()
		}
		memory, err := s.memoryOf(t.proc.Pid)
		if err != nil {
			s.logFor(t).Debug("reading the memory of stunnel failed", "err", err)
			continue
		}
		t.reported.Memory = memory
	}
}

func limitDataSize(pid int, bytes uint64) error {
	return unix.Prlimit(pid, unix.RLIMIT_DATA, &unix.Rlimit{Cur: bytes, Max: bytes}, nil)
}

// dataSize returns the size of the data segment in bytes, which RLIMIT_DATA bounds: VmData of
// proc_pid_status(5).
func dataSize(pid int) (uint64, error) {
	path := "/proc/" + strconv.Itoa(pid) + "/status"
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	return parseDataSize(string(text))
}

func parseDataSize(status string) (uint64, error) {
	for line := range strings.Lines(status) {
		var kib uint64
		if _, err := fmt.Sscanf(line, "VmData: %d kB", &kib); err == nil {
			return kib << 10, nil
		}
	}
	return 0, errors.New("no VmData, because the process has exited")
}
