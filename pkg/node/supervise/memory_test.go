package supervise

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/node/confdir"
	"gnuthought.com/efs-stunnel/pkg/stunnelcfg"
)

func TestDataSizeOfProcess(t *testing.T) {
	if got, err := dataSize(os.Getpid()); err != nil || got < 1<<20 {
		t.Errorf("got %d and %v, want the memory of this process", got, err)
	}
	if got, err := parseDataSize("Name:\tstunnel\nVmData:\t    2048 kB\nVmStk:\t 132 kB\n"); err != nil || got != 2<<20 {
		t.Errorf("got %d and %v, want 2 MiB", got, err)
	}
	for _, text := range []string{"", "Name:\tstunnel\nState:\tZ (zombie)\n", "VmData:\t much kB\n"} {
		if got, err := parseDataSize(text); err == nil {
			t.Errorf("got %d of %q, want an error", got, text)
		}
	}
}

// TestChangeOfMemoryAloneWritesNoStatus: a process whose memory grows all the time must not cause a
// write of the status all the time.
func TestChangeOfMemoryAloneWritesNoStatus(t *testing.T) {
	dir, err := confdir.Open(filepath.Join(t.TempDir(), "stunnel.conf"))
	if err != nil {
		t.Fatal(err)
	}
	s := newSupervisor(Options{MemoryLimit: 100, Log: slog.New(slog.DiscardHandler)}, dir, stunnelcfg.Features{}, nil)
	memory, reads := uint64(0), 0
	s.memoryOf = func(int) (uint64, error) {
		memory, reads = memory+10, reads+1
		return memory, nil
	}
	var limits []uint64
	s.limitMemory = func(_ int, bytes uint64) error {
		limits = append(limits, bytes)
		return nil
	}
	tunnel := newTunnel("fs-1", 0)
	s.tunnels[tunnel.name] = tunnel
	tunnel.setDesired(testConfig(1, 0, "a"))
	tunnel.started(&os.Process{}, tunnel.desired, epoch)
	for _, step := range []struct {
		after   time.Duration
		runs    bool
		memory  uint64 // in the status file
		reads   int
		written time.Duration
	}{
		{after: 0},
		{after: time.Second, runs: true, memory: 10, reads: 1, written: time.Second},
		{after: 2 * time.Second, runs: true, memory: 10, reads: 1, written: time.Second},
		{after: 10 * time.Second, runs: true, memory: 10, reads: 1, written: 10 * time.Second},
		{after: 15 * time.Second, runs: true, memory: 10, reads: 1, written: 10 * time.Second},
		{after: 19 * time.Second, runs: true, memory: 20, reads: 2, written: 19 * time.Second},
	} {
		if step.runs {
			tunnel.phase = phaseRunning
		}
		s.report(epoch.Add(step.after))
		got, err := ReadStatus(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got.MemoryLimit != 100 || got.Tunnels["fs-1"].Memory != step.memory || reads != step.reads || !got.UpdatedAt.Equal(epoch.Add(step.written)) {
			t.Errorf("after %s: got %+v and %d readings, want %+v", step.after, got, reads, step)
		}
	}
	if !slices.Equal(limits, []uint64{100}) {
		t.Errorf("got limits %v, want one for the process", limits)
	}
	tunnel.started(&os.Process{}, tunnel.desired, epoch.Add(20*time.Second))
	s.report(epoch.Add(20 * time.Second))
	if got, err := ReadStatus(dir); err != nil || got.Tunnels["fs-1"].Memory != 0 {
		t.Errorf("got %+v and %v, want no memory of the previous process", got, err)
	}
}
