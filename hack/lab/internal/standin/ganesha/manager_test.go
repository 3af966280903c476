package ganesha

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/hack/lab/internal/proc"
)

// fakes records what is started and stopped. Its processes are this one: alive.
type fakes struct {
	records map[string]proc.Record
	events  []string
}

func (f *fakes) Start(spec proc.Spec, _ ...*os.File) (proc.Record, error) {
	f.events = append(f.events, "start "+spec.Name)
	r := self()
	r.Spec = spec
	f.records[spec.Name] = r
	return r, nil
}

func (f *fakes) Stop(_ context.Context, name string, _ time.Duration) error {
	if _, ok := f.records[name]; ok {
		f.events = append(f.events, "stop "+name)
	}
	delete(f.records, name)
	return nil
}

func (f *fakes) Get(name string) (proc.Record, bool) {
	r, ok := f.records[name]
	return r, ok
}

// self returns a record of the test's own process, which is alive.
func self() proc.Record {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	stat, _ := os.ReadFile("/proc/self/stat")
	_, fields, _ := strings.Cut(string(stat), ") ")
	var start uint64
	for _, digit := range strings.Fields(fields)[19] {
		start = start*10 + uint64(digit-'0')
	}
	return proc.Record{PID: os.Getpid(), StartTime: start, BootID: strings.TrimSpace(string(boot))}
}

func newManager(t *testing.T) (*Manager, *fakes) {
	t.Helper()
	dir := t.TempDir()
	f := &fakes{records: map[string]proc.Record{}}
	return &Manager{
		Root: "/root", StateDir: filepath.Join(dir, "state"), LogDir: dir, Processes: f,
		Log: slog.New(slog.DiscardHandler),
	}, f
}

func TestApplyStartsAdoptsRestartsAndStopsServers(t *testing.T) {
	m, f := newManager(t)
	whole, part := Export{Name: "fs-1", Dir: "/data/fs-1"}, Export{Name: "fsap-1", Dir: "/data/fs-1/a", User: &User{1, 2}}
	apply := func(m *Manager, exports ...Export) {
		t.Helper()
		if err := m.Apply(t.Context(), exports); err != nil {
			t.Fatal(err)
		}
	}
	apply(m, whole, part)
	apply(m, whole, part) // nothing to do
	again := &Manager{Root: m.Root, StateDir: m.StateDir, LogDir: m.LogDir, Processes: f, Log: m.Log}
	apply(again, whole, part) // adopts
	if before, after := address(m, "fs-1"), address(again, "fs-1"); before != after || before == "" {
		t.Errorf("address %q after the restart, %q before", after, before)
	}
	part.User = &User{1, 3}
	apply(again, whole, part) // another configuration
	dead := f.records["ganesha-fs-1"]
	dead.StartTime--
	f.records["ganesha-fs-1"] = dead
	apply(again, whole, part) // a dead server
	apply(again, whole)
	want := []string{
		"start ganesha-fs-1", "start ganesha-fsap-1",
		"stop ganesha-fsap-1", "start ganesha-fsap-1",
		"start ganesha-fs-1",
		"stop ganesha-fsap-1",
	}
	if diff := cmp.Diff(want, f.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if got := address(again, "fsap-1"); got != "" {
		t.Errorf("a stopped server has address %s", got)
	}
}

func address(m *Manager, name string) string {
	text, ok := m.Address(name)
	if !ok {
		return ""
	}
	return text
}

func TestEachServerHasItsOwnConfiguration(t *testing.T) {
	f := filesOf("/state", "/logs", "fsap-1")
	text := config("/root", Export{Name: "fsap-1", Dir: "/data/fs-1/a", User: &User{1000, 2000}}, f, "127.0.0.1:4711")
	for _, line := range []string{
		"NFS_Port = 4711;", "Bind_addr = 127.0.0.1;", `Server_Scope = "fsap-1";`, `Server_Owner = "fsap-1";`,
		"Squash = All; Anonymous_Uid = 1000; Anonymous_Gid = 2000;", `Path = "/data/fs-1/a";`,
		`RecoveryRoot = "/state/fsap-1/recovery";`, `CCacheDir = "/state/fsap-1/tickets";`,
		`Plugins_Dir = "/root/usr/lib/x86_64-linux-gnu/ganesha";`,
	} {
		if !strings.Contains(text, line) {
			t.Errorf("lacks %s in\n%s", line, text)
		}
	}
	if plain := config("/root", Export{Name: "fs-1"}, f, "127.0.0.1:1"); !strings.Contains(plain, "No_Root_Squash") || strings.Contains(plain, "@") {
		t.Errorf("got\n%s", plain)
	}
}

func TestPingAcceptsOnlyASuccessfulReplyToItsCall(t *testing.T) {
	tests := map[string]struct {
		answer func(xid uint32) []byte
		ok     bool
	}{
		"accepted":   {func(xid uint32) []byte { return fields(lastFragment|24, xid, 1, 0, 0, 0, 0) }, true},
		"another's":  {func(xid uint32) []byte { return fields(lastFragment|24, xid+1, 1, 0, 0, 0, 0) }, false},
		"denied":     {func(xid uint32) []byte { return fields(lastFragment|20, xid, 1, 1, 1, 5) }, false},
		"no program": {func(xid uint32) []byte { return fields(lastFragment|24, xid, 1, 0, 0, 0, 1) }, false},
		"nothing":    {func(uint32) []byte { return nil }, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			client, server := net.Pipe()
			defer client.Close()
			go func() {
				defer server.Close()
				call := make([]byte, 44)
				if _, err := io.ReadFull(server, call); err == nil {
					_, _ = server.Write(tt.answer(binary.BigEndian.Uint32(call[4:])))
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := Ping(ctx, client); (err == nil) != tt.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}
