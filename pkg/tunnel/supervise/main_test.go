package supervise_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/tunnel/supervise"
)

// Variables by which this test program becomes a supervisor of its own, or a stunnel that does
// not behave.
const (
	variableRole   = "SUPERVISE_TEST_ROLE"
	variablePrefix = "SUPERVISE_TEST_PREFIX"
	variableProg   = "SUPERVISE_TEST_PROGRAM"
)

func TestMain(m *testing.M) {
	switch os.Getenv(variableRole) {
	case "supervisor":
		os.Exit(superviseForTest())
	case "launch":
		os.Exit(launchForTest(os.Args[1:]))
	case "":
		os.Exit(m.Run())
	}
}

func superviseForTest() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	o := optionsOf(os.Getenv(variablePrefix), os.Getenv(variableProg), 0)
	o.ReapOrphans, o.Log = true, slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := supervise.Run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func launchForTest(args []string) int {
	limit, err := strconv.ParseUint(args[1], 10, 64)
	if err == nil {
		err = supervise.Launch(args[0], args[2], limit)
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// superviseApart has a supervisor in a process of its own, which is returned.
func (w *world) superviseApart() *exec.Cmd {
	w.Helper()
	cmd := exec.CommandContext(w.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), variableRole+"=supervisor", variablePrefix+"="+w.prefix, variableProg+"="+w.program)
	cmd.Stdout, cmd.Stderr = w.log, w.log
	// What inherits the output must not keep Wait from returning.
	cmd.WaitDelay = patience
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		if w.Failed() {
			w.Log(w.log.String())
		}
	})
	return cmd
}

// isZombie reads proc(5)'s stat.
func isZombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	return bytes.Contains(stat, []byte(") Z "))
}

// childrenOf are the processes whose parent this is, living or not waited for.
func childrenOf(t *testing.T, parent int) []int {
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
			continue // gone
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pids = append(pids, pid)
		}
	}
	return pids
}
