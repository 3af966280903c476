package orchestrate

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/hack/lab/internal/machine"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
)

func TestSignificantLines(t *testing.T) {
	long := strings.Repeat("é", tailRunes)
	tests := map[string]struct {
		log  string
		want []string
	}{
		"nothing":                              {"", nil},
		"fewer lines than wanted":              {"a\nb\n", []string{"a", "b"}},
		"the last ones":                        {"a\nb\nc\nd\n", []string{"b", "c", "d"}},
		"no empty, repeated or coloured lines": {"a\n\n \nb\nb\nb\r\n\x1b[1;31mc\x1b[0m\n\x00\x00\n", []string{"a", "b", "c"}},
		"long lines are cut":                   {long + "e", []string{long + "…"}},
		"an alarm before the last lines":       {"x\nKernel panic - not syncing\na\nb\nc\n", []string{"Kernel panic - not syncing", "b", "c"}},
		"an alarm among the last lines":        {"x\na\nBUG: soft\nc\n", []string{"a", "BUG: soft", "c"}},
		"an alarm of an earlier boot":          {"Kernel panic\n" + bootMark + " lab: started\na\nb\nc\n", []string{"a", "b", "c"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, significant(tt.log, 3)); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
}

func testNode(t *testing.T) (*Orchestrator, state.Node) {
	t.Helper()
	o := &Orchestrator{Lab: state.Lab{Name: "t", Dir: t.TempDir()}}
	if err := os.Mkdir(o.Lab.Path("logs"), 0o700); err != nil {
		t.Fatal(err)
	}
	return o, state.Node{Name: "node-7", Index: 7, Zone: "us-east-1b"}
}

func writeLog(t *testing.T, o *Orchestrator, n state.Node, log, text string, written time.Time) {
	t.Helper()
	file := machine.LogFile(o.Lab, n, log)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(file, written, written); err != nil {
		t.Fatal(err)
	}
}

func TestDiagnosisShowsTheEndsOfANodesLogs(t *testing.T) {
	o, n := testNode(t)
	writeLog(t, o, n, machine.Console, "booting\nlab: setting up the network\n", begin.Add(-90*time.Second))
	writeLog(t, o, n, "containerd", "Start streaming server\n", begin.Add(-70*time.Second))
	if got, want := lastMessage(o.nodeTails(n)), "containerd: Start streaming server"; got != want {
		t.Errorf("last message %q, want %q", got, want)
	}
	got := o.diagnosis(n, nodeState{lastProgress: begin.Add(-70 * time.Second), powerCycles: 2}, begin)
	want := `node-7: its machine is stopped; power-cycled 2 times
  console, written 90 s ago:
    booting
    lab: setting up the network
  containerd, written 70 s ago:
    Start streaming server
  kubelet: it has logged nothing`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("diagnosis (-want +got):\n%s", diff)
	}
}

func TestLastMessageIsThePanic(t *testing.T) {
	o, n := testNode(t)
	writeLog(t, o, n, machine.Console, "Kernel panic - not syncing: Fatal exception\nCPU: 0\nRIP: 0\nRSP: 0\nRebooting in 10 seconds..\n", begin)
	writeLog(t, o, n, "kubelet", "older\n", begin.Add(-time.Second))
	if got, want := lastMessage(o.nodeTails(n)), "console: Kernel panic - not syncing: Fatal exception"; got != want {
		t.Errorf("last message %q, want %q", got, want)
	}
}

func TestEveryLogOfANodeIsProgress(t *testing.T) {
	o, n := testNode(t)
	before := o.loggedBytes(n)
	for _, log := range append(machine.GuestLogs(), machine.Console) {
		writeLog(t, o, n, log, "a line\n", begin)
		after := o.loggedBytes(n)
		if after <= before {
			t.Errorf("%s's log is not counted", log)
		}
		before = after
	}
}

func TestConsoleLogIsKeptInAPowerCycle(t *testing.T) {
	o, n := testNode(t)
	writeLog(t, o, n, machine.Console, "first boot", begin)
	if err := o.markConsole(n, "power-cycled"); err != nil {
		t.Fatal(err)
	}
	tail := readTail(machine.Console, machine.LogFile(o.Lab, n, machine.Console), 5)
	if len(tail.lines) != 2 || tail.lines[0] != "first boot" || !strings.HasPrefix(tail.lines[1], bootMark) || !strings.HasSuffix(tail.lines[1], "power-cycled") {
		t.Errorf("got %q", tail.lines)
	}
}
