package proc

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/hack/lab/internal/jsonfile"
)

// ExecCommand is the hidden subcommand for which the lab's program must call Exec: Start runs its own
// program with it.
const ExecCommand = "internal-exec"

// firstExtraFD is the descriptor of the first file in exec.Cmd.ExtraFiles.
const firstExtraFD = 3

// failure is the message of Exec on the status pipe when it could not start the program.
type failure struct {
	Error string `json:"error"`
}

// Start runs a spec detached from this process, in a session of its own, and returns its record. A
// running process of that name is an error, the record of one that ended is replaced. The process
// inherits the files as descriptors 3, 4, …; sockets keep the network namespace in which they were
// opened.
func (d Dir) Start(spec Spec, files ...*os.File) (Record, error) {
	if r, ok := d.Get(spec.Name); ok && r.Alive() {
		return Record{}, fmt.Errorf("starting %s: already running as pid %d", spec.Name, r.PID)
	}
	if err := os.MkdirAll(d.Path, 0o700); err != nil {
		return Record{}, fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	if err := os.MkdirAll(filepath.Dir(spec.LogFile), 0o755); err != nil {
		return Record{}, fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	if err := os.Remove(d.file(spec.Name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return Record{}, fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	if err := d.spawn(spec, files); err != nil {
		return Record{}, fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	r, ok := d.Get(spec.Name)
	if !ok {
		return Record{}, fmt.Errorf("starting %s: no record was written", spec.Name)
	}
	return r, nil
}

// spawn starts the wrapper and waits until it has executed the program, which closes the pipe without
// an error in it.
func (d Dir) spawn(spec Spec, files []*os.File) error {
	encoded, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("encoding spec: %w", err)
	}
	log, err := os.OpenFile(spec.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening log: %w", err)
	}
	defer log.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("making a pipe: %w", err)
	}
	defer r.Close()
	statusFD := strconv.Itoa(firstExtraFD + len(files))
	cmd := exec.Command("/proc/self/exe", ExecCommand, statusFD, d.file(spec.Name), string(encoded)) //nolint:noctx // it must outlive every context of this process
	cmd.Env = append(os.Environ(), spec.Env...)
	cmd.Dir = spec.WorkDir
	cmd.Stdout, cmd.Stderr = log, log
	// The status pipe comes last, so that the given files keep 3, 4, ….
	cmd.ExtraFiles = append(append([]*os.File{}, files...), w)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := errors.Join(cmd.Start(), w.Close()); err != nil {
		return fmt.Errorf("starting: %w", err)
	}
	// Without Wait, the child of a long-lived parent would become a zombie.
	go func() { _ = cmd.Wait() }()
	var failed failure
	if err := json.NewDecoder(r).Decode(&failed); err == nil {
		return errors.New(failed.Error)
	}
	return nil
}

// Exec does the wrapper's part of Start: it enters the network namespace, writes the record and executes
// the program. It returns only on failure.
func Exec(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("%s is for the lab's own use: want descriptor, record file and spec", ExecCommand)
	}
	fd, err := strconv.Atoi(args[0])
	if err != nil {
		return fmt.Errorf("reading descriptor: %w", err)
	}
	status := os.NewFile(uintptr(fd), "status")
	err = execSpec(args[1], args[2], status)
	_ = json.NewEncoder(status).Encode(failure{Error: err.Error()})
	return err
}

func execSpec(recordFile, encodedSpec string, status *os.File) error {
	var spec Spec
	if err := json.Unmarshal([]byte(encodedSpec), &spec); err != nil {
		return fmt.Errorf("decoding spec: %w", err)
	}
	// The exec keeps the namespace of the thread that calls it.
	runtime.LockOSThread()
	if spec.NetNS != "" {
		if err := EnterNetNS(spec.NetNS); err != nil {
			return err
		}
	}
	takePrecedence()
	stat, err := statOf(os.Getpid())
	if err != nil {
		return err
	}
	r := Record{Spec: spec, PID: os.Getpid(), StartTime: stat.Starttime, BootID: bootID(), StartedAt: time.Now()}
	if err := jsonfile.Write(recordFile, r); err != nil {
		return fmt.Errorf("writing process record: %w", err)
	}
	unix.CloseOnExec(int(status.Fd()))
	if err := syscall.Exec(spec.Args[0], spec.Args, os.Environ()); err != nil {
		return errors.Join(fmt.Errorf("running %s: %w", spec.Args[0], err), os.Remove(recordFile))
	}
	return nil
}

// nice is the niceness of the lab's processes: nodes whose emulation waits for a build miss the terms of their
// leases.
const nice = -10

// takePrecedence gives the calling thread, and with it the program that it becomes, the processors before others.
// Where the kernel groups processes by session, only the group's nice value counts beside other sessions
// (sched(7), "The autogroup feature"). A container without CAP_SYS_NICE goes without.
func takePrecedence() {
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, nice)
	_ = os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(nice)), 0)
}

// EnterNetNS moves the calling thread, which the caller has locked, into a network namespace.
func EnterNetNS(path string) error {
	ns, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening network namespace: %w", err)
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering network namespace %s: %w", path, err)
	}
	return nil
}
