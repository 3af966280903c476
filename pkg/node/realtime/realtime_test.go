package realtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The test's binary is the program: as in a container, it begins as root and does not stay it.
const roleVariable, user = "REALTIME_TEST_ROLE", 20490

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == "" {
		os.Exit(m.Run())
	}
	fmt.Println("entered:", Enter("/bin/sh"))
	fmt.Println("left:", Leave(user, user))
	attr, err := unix.SchedGetAttr(0, 0)
	fmt.Printf("policy: %d %v\n", attr.Policy, err)
	for _, file := range []string{"/proc/self/status", "/proc/self/maps"} {
		text, err := os.ReadFile(file)
		fmt.Printf("%s%v\n", text, err)
	}
	child, err := exec.CommandContext(context.Background(), "/bin/sh", "-c", "cat /proc/self/sched; id -u").CombinedOutput()
	fmt.Printf("child: %s%v\n", child, err)
}

// TestEnter has a process become what a supervisor with --realtime is.
func TestEnter(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may have realtime priority")
	}
	// With no memory that one may lock without the capability.
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `ulimit -l 0; exec "$0"`, "/proc/"+fmt.Sprint(os.Getpid())+"/exe")
	cmd.Env = append(os.Environ(), roleVariable+"=process")
	output, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	for _, want := range []string{
		`(?m)^entered: <nil>$`,
		`(?m)^left: <nil>$`,
		`(?m)^policy: 2 <nil>$`,
		`(?m)^VmLck:\s+[0-9]{4,} kB$`, // some MiB
		`(?m)^Uid:\s+20490\s+20490\s+20490\s+20490$`,
		`(?m)^Gid:\s+20490\s+20490\s+20490\s+20490$`,
		`(?m)^CapPrm:\s+0000000000000000$`,
		`(?m)^CapEff:\s+0000000000000000$`,
		`/libc\.so\.6`, // of the program, mapped here although this one is static
		`(?m)^policy +: +2$`,
		`(?m)^20490$`,
	} {
		if !regexp.MustCompile(want).Match(output) {
			t.Errorf("no %s in\n%s", want, output)
		}
	}
}

func TestEnterNeedsRoot(t *testing.T) {
	if os.Geteuid() == 0 {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestEnterNeedsRoot$", "-test.v")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
		if output, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(output), "--- PASS") {
			t.Fatalf("%v: %s", err, output)
		}
		return
	}
	if err := Enter("/bin/sh"); !errors.Is(err, ErrNotRoot) {
		t.Errorf("got %v, want %v", err, ErrNotRoot)
	}
}

func TestProgramsThatCannotBeLocked(t *testing.T) {
	script := t.TempDir() + "/stunnel"
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{script: "reading the program " + script, "/does/not/exist": "no such file"} {
		if _, err := filesOf(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
}
