package supervise_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/node/supervise"
	"gnuthought.com/efs-stunnel/pkg/program/process"
)

// Environment variables that make this test program a supervisor or a launcher.
const (
	variableRole   = "SUPERVISE_TEST_ROLE"
	variablePrefix = "SUPERVISE_TEST_PREFIX"
	variableProg   = "SUPERVISE_TEST_PROGRAM"
)

func TestMain(m *testing.M) {
	switch os.Getenv(variableRole) {
	case "supervisor":
		os.Exit(runSupervisor())
	case "launch":
		os.Exit(runLauncher())
	case "":
		os.Exit(m.Run())
	}
}

// runLauncher launches from another thread than the first one, which the runtime chooses at times.
func runLauncher() int {
	runtime.LockOSThread()
	launched := make(chan error)
	go func() { launched <- process.Launch(os.Args[1], os.Args[2]) }()
	fmt.Fprintln(os.Stderr, <-launched)
	return 1
}

func runSupervisor() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	o := newOptions(os.Getenv(variablePrefix), os.Getenv(variableProg), 0)
	o.ReapOrphans, o.Log = true, slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := supervise.Run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// startSupervisorProcess starts a supervisor in another process.
func (h *harness) startSupervisorProcess() *exec.Cmd {
	h.Helper()
	cmd := exec.CommandContext(h.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), variableRole+"=supervisor", variablePrefix+"="+h.prefix, variableProg+"="+h.program)
	cmd.Stdout, cmd.Stderr = h.log, h.log
	// Without it, Wait blocks while a stunnel has the output open.
	cmd.WaitDelay = testTimeout
	if err := cmd.Start(); err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() {
		_ = cmd.Process.Kill() // may have exited
		_ = cmd.Wait()
		if h.Failed() {
			h.Log(h.log.String())
		}
	})
	return cmd
}

// isZombie parses proc_pid_stat(5).
func isZombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	return bytes.Contains(stat, []byte(") Z "))
}

// childPIDs lists the children of a process, zombies included.
func childPIDs(t *testing.T, parent int) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue // has exited
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pids = append(pids, pid)
		}
	}
	return pids
}
