// Package process runs the child processes of a program that supervises others: none outlives the
// program, their output is read in lines, and adopted orphans are reaped.
package process

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// OutputGrace is how long to read on after the exit of a process whose children keep its output open.
const OutputGrace = time.Second

// Starter starts processes, all from one thread: the kernel kills them when that thread ends
// (PR_SET_PDEATHSIG), and so whenever this program ends.
type Starter chan func()

// NewStarter makes a starter that works until it is closed.
func NewStarter() Starter {
	s := make(Starter)
	go func() {
		// Never unlocked: the runtime may end an unlocked thread.
		runtime.LockOSThread()
		for start := range s {
			start()
		}
	}()
	return s
}

// Start starts a command. It calls line for each line of its output that is not empty, and exited once after the last,
// both in other goroutines.
func (s Starter) Start(cmd *exec.Cmd, line, exited func(string)) (*os.Process, error) {
	out := &lines{emit: line}
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = OutputGrace
	cmd.SysProcAttr = cmp.Or(cmd.SysProcAttr, &syscall.SysProcAttr{})
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	cmd.SysProcAttr.Setpgid = true // an interrupt on a terminal reaches the parent alone
	started := make(chan error, 1)
	s <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, err
	}
	go func() {
		exitStatus := fmt.Sprint(cmd.Wait()) // an error of the wait itself, unless there is a state
		if cmd.ProcessState != nil {
			exitStatus = cmd.ProcessState.String() // "exit status 1" or "signal: killed"
		}
		out.flush()
		exited(exitStatus)
	}()
	return cmd.Process, nil
}

// Launch replaces this process by stunnel, which takes descriptor 3 as its listening socket
// (sd_listen_fds(3)). The protocol demands the process id of stunnel in LISTEN_PID, which only the
// process itself has before the exec. Launch returns only on error.
func Launch(program, file string) error {
	return Exec("stunnel", []string{program, file}, "LISTEN_FDS=1", "LISTEN_PID="+strconv.Itoa(os.Getpid()))
}

// Exec replaces this process by a program that ends with the parent. It returns only on error.
func Exec(title string, command []string, variables ...string) error {
	// The kernel keeps the signal for each thread, and the program gets that of the thread that calls
	// exec, which need not be the one for which the parent asked.
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("having %s end with its parent: %w", title, err)
	}
	err := syscall.Exec(command[0], command, append(os.Environ(), variables...))
	return fmt.Errorf("starting %s: %w", command[0], err)
}

const (
	// minRestartDelay is the delay of the start after the second death in a row. Each further death
	// doubles it, up to maxRestartDelay.
	minRestartDelay = 500 * time.Millisecond
	maxRestartDelay = 30 * time.Second
)

// RestartDelay returns the delay after a number of deaths in a row: none after the first.
func RestartDelay(deaths int) time.Duration {
	if deaths <= 1 {
		return 0
	}
	const maxDoublings = 10 // more than it takes to reach maxRestartDelay
	return min(minRestartDelay<<min(deaths-2, maxDoublings), maxRestartDelay)
}
