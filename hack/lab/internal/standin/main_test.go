package standin

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"gnuthought.com/efs-stunnel/hack/lab/internal/proc"
)

// inNamespace marks the test process that runs in a network namespace.
const inNamespace = "STANDIN_TEST_IN_NAMESPACE"

// TestMain runs the tests once more in a network namespace of their own, where
// they may use the lab's real addresses and ports.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == proc.ExecCommand {
		if err := proc.Exec(os.Args[2:]); err != nil {
			os.Exit(1)
		}
	}
	if os.Getenv(inNamespace) != "" || os.Geteuid() != 0 {
		os.Exit(m.Run())
	}
	runtime.LockOSThread()                                // the death signal is the thread's
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...) //nolint:noctx // there is no context before the tests run
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		os.Exit(m.Run()) // not allowed to make a namespace: the tests that need one skip
	}
	os.Exit(cmd.ProcessState.ExitCode())
}
