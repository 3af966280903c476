package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/program"
	"gnuthought.com/efs-stunnel/test/support/stunneltest"
)

// TestSupervisorThatStaysRootEnds runs itself in a user namespace in which nobody may give up root's groups.
func TestSupervisorThatStaysRootEnds(t *testing.T) {
	const variable = "SUPERVISOR_STAYS_ROOT"
	stunnel := stunneltest.Path(t)
	if prefix := os.Getenv(variable); prefix != "" {
		code := run(t.Context(), []string{"--realtime", "--stunnel-conf", prefix, "--stunnel", stunnel}, noEnv, os.Stdout, os.Stdout)
		if code != program.ExitFailed {
			t.Errorf("got exit code %d, want %d", code, program.ExitFailed)
		}
		return
	}
	root := func(id int) []syscall.SysProcIDMap { return []syscall.SysProcIDMap{{HostID: id, Size: 1}} }
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout="+testTimeout.String())
	cmd.Env = append(os.Environ(), variable+"="+filepath.Join(t.TempDir(), "stunnel.conf"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: root(os.Geteuid()), GidMappings: root(os.Getegid())}
	output, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "giving up root's groups: operation not permitted") {
		t.Errorf("%v:\n%s", err, output)
	}
}
