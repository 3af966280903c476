package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// asProgram has the test's own program run as histories.
const asProgram = "HISTORIES_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "" {
		os.Exit(m.Run())
	}
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestLocalFileSystemHasNoViolation, while clients are killed and others come in their place.
func TestLocalFileSystemHasNoViolation(t *testing.T) {
	const clients, operations = 6, 400
	dir := t.TempDir()
	requireDirect(t, dir)
	t.Setenv(asProgram, "1")
	o := options{history: filepath.Join(t.TempDir(), "history.jsonl"), least: clients * operations * 2}
	address := serve(t, o.history)
	start := func(slot int) (kill func()) {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "client", "-referee", address, "-dir", dir,
			"-slot", strconv.Itoa(slot), "-slots", strconv.Itoa(clients))
		cmd.Stderr = t.Output()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err == nil {
				t.Error("a client ended by itself")
			}
		}
	}
	await := func() {
		if err := ask(t.Context(), address, request{Role: "await", Clients: clients, Count: operations}, t.Output()); err != nil {
			t.Fatal(err)
		}
	}
	first, second := start(0), start(1)
	for slot := 2; slot < clients; slot++ {
		start(slot)
	}
	await()
	first()
	second()
	start(0)
	start(1)
	await()

	var text bytes.Buffer
	if err := ask(t.Context(), address, request{Role: "finish"}, &text); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(o.history, text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := judge(o, t.Output()); err != nil {
		t.Error(err)
	}
}

// serve runs a referee in the background, and returns its address.
func serve(t *testing.T, history string) (address string) {
	t.Helper()
	r, err := newReferee(history)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- r.serve(t.Context(), listener) }()
	t.Cleanup(func() {
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// requireDirect skips the test where the file system has no O_DIRECT.
func requireDirect(t *testing.T, dir string) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(dir, "direct"), os.O_CREATE|os.O_RDWR|unix.O_DIRECT, 0o600)
	if errors.Is(err, unix.EINVAL) {
		t.Skip("no O_DIRECT here")
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestClientsHaveSlotsOfTheirOwn: two clients in one slot would write the same files, and look like violations.
func TestClientsHaveSlotsOfTheirOwn(t *testing.T) {
	for _, line := range []string{"clients -clients 2", "client -slot 1", "clients -clients 4 -slot 5 -slots 8", "client -slot -1"} {
		if err := run(t.Context(), strings.Fields(line), t.Output()); !errors.Is(err, errUsage) {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// TestRemovalOfAMissingFileFails, also where the server has removed it for a request before.
func TestRemovalOfAMissingFileFails(t *testing.T) {
	w := &worker{dir: t.TempDir()}
	if err := os.WriteFile(w.path("mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{done, "failed: unlink does not find mine, and neither has its directory"} {
		if got := w.remove("mine"); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
