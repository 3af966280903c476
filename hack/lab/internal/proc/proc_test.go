package proc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/hack/lab/internal/jsonfile"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == ExecCommand {
		if err := Exec(os.Args[2:]); err != nil {
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

func start(t *testing.T, d Dir, script string, files ...*os.File) Record {
	t.Helper()
	r, err := d.Start(Spec{
		Name:    "part",
		Args:    []string{"/bin/sh", "-c", script},
		LogFile: filepath.Join(d.Path, "part.log"),
	}, files...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Stop(context.WithoutCancel(t.Context()), "part", 0) })
	return r
}

func TestStartRecordsTheProcessItStarts(t *testing.T) {
	d := Dir{t.TempDir()}
	r := start(t, d, "exec sleep 300")
	if !r.Alive() {
		t.Fatalf("record %+v is not alive", r)
	}
	if _, err := d.Start(r.Spec); err == nil || !strings.Contains(err.Error(), "already running") {
		t.Errorf("second start: %v, want already running", err)
	}
	if err := d.Stop(t.Context(), "part", time.Minute); err != nil {
		t.Fatal(err)
	}
	if r.Alive() {
		t.Error("alive after stop")
	}
	if _, ok := d.Get("part"); ok {
		t.Error("record is still there after stop")
	}
	if err := d.Stop(t.Context(), "part", 0); err != nil {
		t.Errorf("second stop: %v", err)
	}
}

func TestStopKillsAProcessThatIgnoresSIGTERM(t *testing.T) {
	d := Dir{t.TempDir()}
	ready, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, d, `trap "" TERM; echo ready >&3; exec sleep 300`, w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := ready.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if err := d.Stop(t.Context(), "part", 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if r.Alive() {
		t.Error("alive after SIGKILL")
	}
}

func TestStopLeavesAProcessWithAReusedPidAlone(t *testing.T) {
	other := exec.CommandContext(t.Context(), "sleep", "300")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	d := Dir{t.TempDir()}
	stat, err := statOf(other.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	stale := map[string]Record{
		"earlier start": {PID: other.Process.Pid, StartTime: stat.Starttime - 1, BootID: bootID()},
		"other boot":    {PID: other.Process.Pid, StartTime: stat.Starttime, BootID: "another"},
	}
	for name, r := range stale {
		t.Run(name, func(t *testing.T) {
			r.Name = "part"
			if err := jsonfile.Write(d.file("part"), r); err != nil {
				t.Fatal(err)
			}
			if err := d.Stop(t.Context(), "part", 0); err != nil {
				t.Fatal(err)
			}
			if err := unix.Kill(other.Process.Pid, 0); err != nil {
				t.Errorf("the other process: %v, want it alive", err)
			}
		})
	}
}

func TestStartReportsAProgramThatDoesNotExist(t *testing.T) {
	d := Dir{t.TempDir()}
	_, err := d.Start(Spec{Name: "part", Args: []string{"/nowhere/program"}, LogFile: filepath.Join(d.Path, "log")})
	if err == nil || !strings.Contains(err.Error(), "/nowhere/program: no such file") {
		t.Errorf("got %v, want the program's name and no such file", err)
	}
	if _, ok := d.Get("part"); ok {
		t.Error("a record was left")
	}
}

func TestInheritedSocketIsDescriptor3(t *testing.T) {
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	f, err := listener.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := Dir{t.TempDir()}
	start(t, d, "readlink /proc/self/fd/3 >&2; exec sleep 300", f)
	log := filepath.Join(d.Path, "part.log")
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		data, err := os.ReadFile(log)
		if err == nil && strings.Contains(string(data), "socket:[") {
			return
		}
	}
	t.Error("descriptor 3 is not the socket")
}

func TestUsageDistinguishesABusyProcessFromAStoppedOne(t *testing.T) {
	d := Dir{t.TempDir()}
	r := start(t, d, "while :; do :; done")
	eventually(t, "a process that counts to use the processor", func() bool {
		u, alive := r.Usage()
		return alive && u.CPU > 50*time.Millisecond
	})
	if err := unix.Kill(r.PID, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a stopped process to be seen as one", func() bool {
		u, alive := r.Usage()
		return alive && u.State == "T"
	})
	if err := d.Stop(t.Context(), "part", 0); err != nil {
		t.Fatal(err)
	}
	if u, alive := r.Usage(); alive {
		t.Errorf("an ended process has usage %+v", u)
	}
}

func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !check() {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
		<-ticker.C
	}
}

func TestErrorNamesADamagedRecord(t *testing.T) {
	d := Dir{t.TempDir()}
	if err := os.WriteFile(d.file("part"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.List(); err == nil || !strings.Contains(err.Error(), "part.json") {
		t.Errorf("got %v, want an error that names part.json", err)
	}
}

// TestStartedProcessesHavePrecedence over builds in other sessions.
func TestStartedProcessesHavePrecedence(t *testing.T) {
	if err := unix.Setpriority(unix.PRIO_PROCESS, os.Getpid(), -1); err != nil {
		t.Skipf("this machine lets nobody take precedence: %v", err)
	}
	t.Cleanup(func() { _ = unix.Setpriority(unix.PRIO_PROCESS, os.Getpid(), 0) })
	r := start(t, Dir{t.TempDir()}, "exec sleep 300")
	const ofNice0 = 20 // as the system call returns it
	if got, err := unix.Getpriority(unix.PRIO_PROCESS, r.PID); err != nil || got != ofNice0-nice {
		t.Errorf("priority %d, %v; want %d", got, err, ofNice0-nice)
	}
	group, err := os.ReadFile(fmt.Sprintf("/proc/%d/autogroup", r.PID))
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if want := fmt.Sprintf(" nice %d\n", nice); err != nil || !strings.HasSuffix(string(group), want) {
		t.Errorf("group %q, %v; want one with%q", group, err, want)
	}
}
