package supervise

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// outputGrace is how long to read on after the exit of a process whose children keep its output open.
const outputGrace = time.Second

// starter starts processes, all from one thread: the kernel kills them when that thread ends
// (PR_SET_PDEATHSIG), and so whenever this program ends.
type starter struct {
	command  []string // without its last argument, the configuration file
	requests chan func()
}

// newStarter makes a starter that works until the context ends.
func newStarter(ctx context.Context, o Options) *starter {
	s := &starter{command: append(slices.Clone(o.Launcher), o.Stunnel), requests: make(chan func())}
	go func() {
		// Never unlocked: the runtime may end an unlocked thread.
		runtime.LockOSThread()
		for {
			select {
			case <-ctx.Done():
				return
			case request := <-s.requests:
				request()
			}
		}
	}()
	return s
}

// start starts a process with a configuration file and a listening socket. It copies the output to
// out, and calls exited once after that, both in other goroutines.
func (s *starter) start(file string, socket *os.File, out io.Writer, exited func(exitStatus string)) (*os.Process, error) {
	command := append(slices.Clone(s.command), file)
	// No context: the supervisor stops processes by signals, after the context has ended.
	cmd := exec.Command(command[0], command[1:]...) //nolint:noctx // see above
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{socket} // becomes descriptor 3
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = outputGrace
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL,
		Setpgid:   true, // an interrupt on a terminal reaches the supervisor alone
	}
	started := make(chan error, 1)
	s.requests <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, err
	}
	go func() {
		exitStatus := fmt.Sprint(cmd.Wait()) // an error of the wait itself, unless there is a state
		if cmd.ProcessState != nil {
			exitStatus = cmd.ProcessState.String() // "exit status 1" or "signal: killed"
		}
		exited(exitStatus)
	}()
	return cmd.Process, nil
}

// Launch replaces this process by stunnel, which takes descriptor 3 as its listening socket
// (sd_listen_fds(3)). The protocol demands the process id of stunnel in LISTEN_PID, which only the
// process itself has before the exec. Launch returns only on error.
func Launch(program, file string) error {
	// The kernel keeps the signal for each thread, and stunnel gets that of the thread that calls
	// exec, which need not be the one for which the supervisor asked.
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("having stunnel end with the supervisor: %w", err)
	}
	env := append(os.Environ(), "LISTEN_FDS=1", "LISTEN_PID="+strconv.Itoa(os.Getpid()))
	if err := syscall.Exec(program, []string{program, file}, env); err != nil {
		return fmt.Errorf("starting %s: %w", program, err)
	}
	return nil
}

// reapOrphans reaps the zombies of which the supervisor is the parent, but which it has not started.
func (s *supervisor) reapOrphans() {
	if !s.options.ReapOrphans {
		return
	}
	own := map[int]bool{}
	for _, t := range s.tunnels {
		if t.proc != nil {
			own[t.proc.Pid] = true
		}
	}
	for _, pid := range zombieChildren(os.Getpid()) {
		if !own[pid] {
			// The exit status of an orphan is of no interest, nor is an error.
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
	}
}

// zombieChildren returns the process ids of the children that have exited and are not reaped.
func zombieChildren(parent int) []int {
	var zombies []int
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is valid
	for _, file := range files {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			continue
		}
		if stat, err := os.ReadFile(file); err == nil && isZombieOf(stat, parent) {
			zombies = append(zombies, pid)
		}
	}
	return zombies
}

// isZombieOf parses proc_pid_stat(5): pid, (name), state, parent. The name may contain any character.
func isZombieOf(stat []byte, parent int) bool {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	return len(fields) > 1 && string(fields[0]) == "Z" && string(fields[1]) == strconv.Itoa(parent)
}
