package supervise

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// process is a running stunnel.
type process interface {
	PID() int
	// Signal may come too late; then nothing happens.
	Signal(syscall.Signal)
}

// runner begins processes.
type runner interface {
	// Start begins a process that reads the file and accepts from the socket. What it writes
	// goes to out, then ended is called once, with how it ended; both from goroutines of their own.
	Start(file string, socket *os.File, out io.Writer, ended func(how string)) (process, error)
}

// programs runs the real stunnel. All its processes are begun from one thread that lives as
// long as this one's goroutine: the kernel kills them when that thread ends, and so when this
// program does in whatever way.
type programs struct {
	command  []string // that becomes stunnel, less the configuration's file
	requests chan func()
}

// newPrograms makes a runner that works until the context ends.
func newPrograms(ctx context.Context, o Options) *programs {
	command := append(append([]string(nil), o.Launcher...), o.Stunnel, strconv.FormatUint(o.MemoryLimit, 10))
	p := &programs{command: command, requests: make(chan func())}
	go p.serve(ctx)
	return p
}

func (p *programs) serve(ctx context.Context) {
	// Never unlocked: a thread that were given back could end with another goroutine.
	runtime.LockOSThread()
	for {
		select {
		case <-ctx.Done():
			return
		case begin := <-p.requests:
			begin()
		}
	}
}

type program struct{ cmd *exec.Cmd }

func (p program) PID() int { return p.cmd.Process.Pid }

func (p program) Signal(signal syscall.Signal) {
	// The error says that it has ended, which its end says, too.
	_ = p.cmd.Process.Signal(signal)
}

// outputGrace is how long what inherited the output of an ended process may keep it open.
const outputGrace = time.Second

func (p *programs) Start(file string, socket *os.File, out io.Writer, ended func(how string)) (process, error) {
	// No context: processes end in order, by signals, and not when the program is told to end.
	cmd := exec.Command(p.command[0], append(p.command[1:len(p.command):len(p.command)], file)...) //nolint:noctx // see above
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{socket} // becomes descriptor 3
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = outputGrace
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL,
		Setpgid:   true, // an interrupt on a terminal reaches the supervisor alone
	}
	begun := make(chan error, 1)
	p.requests <- func() { begun <- cmd.Start() }
	if err := <-begun; err != nil {
		return nil, err
	}
	go func() { ended(ending(cmd.Wait(), cmd.ProcessState)) }()
	return program{cmd}, nil
}

// ending says how a process ended.
func ending(err error, state *os.ProcessState) string {
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
