package supervise

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a running stunnel.
type process interface {
	PID() int
	// Signal has no effect on a process that has exited.
	Signal(syscall.Signal)
}

// runner starts stunnel processes.
type runner interface {
	// Start starts a process with a configuration file and a listening socket. It copies the output
	// to out, and calls exited once after that, both in other goroutines.
	Start(file string, socket *os.File, out io.Writer, exited func(exitStatus string)) (process, error)
}

// execRunner starts real processes, all from one thread: the kernel kills them when that thread ends
// (PR_SET_PDEATHSIG), and so whenever this program ends.
type execRunner struct {
	command  []string // without its last argument, the configuration file
	requests chan func()
}

// newPrograms makes a runner that works until the context ends.
func newExecRunner(ctx context.Context, o Options) *execRunner {
	command := append(append([]string(nil), o.Launcher...), o.Stunnel)
	p := &execRunner{command: command, requests: make(chan func())}
	go p.serve(ctx)
	return p
}

func (p *execRunner) serve(ctx context.Context) {
	// Never unlocked: the runtime may end an unlocked thread.
	runtime.LockOSThread()
	for {
		select {
		case <-ctx.Done():
			return
		case start := <-p.requests:
			start()
		}
	}
}

type execProcess struct{ cmd *exec.Cmd }

func (p execProcess) PID() int { return p.cmd.Process.Pid }

func (p execProcess) Signal(signal syscall.Signal) {
	// The error says that the process has exited, which the runner reports, too.
	_ = p.cmd.Process.Signal(signal)
}

// outputGrace is how long to read on after the exit of a process whose children keep its output
// open.
const outputGrace = time.Second

func (p *execRunner) Start(file string, socket *os.File, out io.Writer, exited func(exitStatus string)) (process, error) {
	// No context: the supervisor stops processes by signals, after the context has ended.
	cmd := exec.Command(p.command[0], append(p.command[1:len(p.command):len(p.command)], file)...) //nolint:noctx // see above
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{socket} // becomes descriptor 3
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = outputGrace
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL,
		Setpgid:   true, // an interrupt on a terminal reaches the supervisor alone
	}
	started := make(chan error, 1)
	p.requests <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, err
	}
	go func() { exited(exitStatus(cmd.Wait(), cmd.ProcessState)) }()
	return execProcess{cmd}, nil
}

// exitStatus describes the exit of a process, for example "exit status 1" or "signal: killed".
func exitStatus(err error, state *os.ProcessState) string {
	var exit *exec.ExitError
	switch {
	case state != nil:
		return state.String()
	case errors.As(err, &exit):
		return exit.String()
	case err != nil:
		return err.Error()
	}
	return "ended"
}
