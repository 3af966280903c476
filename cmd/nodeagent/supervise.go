package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// supervisorProgram lies in this program's folder.
const supervisorProgram = "nodeagent-supervise"

// superviseMain becomes the supervisor, in this process: it must not take the memory of what is
// linked here.
func superviseMain(args []string) int {
	return becomeSupervisor(args, os.Executable, syscall.Exec, os.Stderr)
}

// becomeSupervisor returns only if it could not.
func becomeSupervisor(
	args []string,
	executable func() (string, error),
	exec func(path string, argv, env []string) error,
	stderr io.Writer,
) int {
	self, err := executable()
	if err == nil {
		path := filepath.Join(filepath.Dir(self), supervisorProgram)
		err = exec(path, append([]string{path}, args...), os.Environ())
		err = fmt.Errorf("starting %s: %w", path, err)
	}
	fmt.Fprintln(stderr, "nodeagent supervise:", err)
	return exitFailed
}
