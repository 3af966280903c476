package orchestrate

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/hack/lab/internal/machine"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
)

// logTail is the end of one log.
type logTail struct {
	name    string
	lines   []string  // the last significant ones, oldest first
	written time.Time // zero when there is no log
}

// How much of a log is read and printed. CI keeps about fifty lines of a failed run.
const (
	tailBytes = 16 << 10
	tailRunes = 200
)

// readTail reads the end of a log. A log that cannot be read counts as empty, because readTail is used to
// describe another failure.
func readTail(name, file string, lines int) logTail {
	tail := logTail{name: name}
	f, err := os.Open(file)
	if err != nil {
		return tail
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return tail
	}
	data, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-tailBytes), tailBytes))
	if err != nil {
		return tail
	}
	tail.lines, tail.written = significant(string(data), lines), info.ModTime()
	return tail
}

var (
	// Escape sequences and control characters.
	notText = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
	// The first line of a failure of the kernel or of a node's boot. Pages of registers and calls may
	// follow.
	alarm = regexp.MustCompile(`Kernel panic|BUG:|Oops|rcu: INFO|FAILED|[Gg]ave up`)
)

// significant returns the last lines of a log, without empty and repeated ones, as many as wanted. The
// last alarm replaces the first of them if it is before them.
func significant(log string, want int) []string {
	var all []string
	last := -1 // index of the last alarm
	for line := range strings.SplitSeq(log, "\n") {
		line = shorten(strings.TrimSpace(notText.ReplaceAllString(line, "")))
		if line == "" || len(all) > 0 && all[len(all)-1] == line {
			continue
		}
		switch {
		case strings.HasPrefix(line, bootMark):
			last = -1 // of an earlier boot
		case alarm.MatchString(line):
			last = len(all)
		}
		all = append(all, line)
	}
	if len(all) <= want {
		return all
	}
	end := all[len(all)-want:]
	if last >= 0 && last < len(all)-want {
		end = append([]string{all[last]}, end[1:]...)
	}
	return end
}

func shorten(line string) string {
	runes := []rune(line)
	if len(runes) <= tailRunes {
		return line
	}
	return string(runes[:tailRunes]) + "…"
}

// nodeTails returns the ends of the logs that show what a node did last. kube-proxy starts with the kubelet,
// and its log adds nothing.
func (o *Orchestrator) nodeTails(n state.Node) []logTail {
	return []logTail{
		readTail("qemu", o.Lab.LogFile(n.Part()), 2),
		readTail("console", machine.LogFile(o.Lab, n, machine.Console), 4),
		readTail("containerd", machine.LogFile(o.Lab, n, "containerd"), 2),
		readTail("kubelet", machine.LogFile(o.Lab, n, "kubelet"), 4),
	}
}

// loggedBytes returns the size of a node's logs.
func (o *Orchestrator) loggedBytes(n state.Node) int64 {
	var sum int64
	for _, log := range append(machine.GuestLogs(), machine.Console) {
		if info, err := os.Stat(machine.LogFile(o.Lab, n, log)); err == nil {
			sum += info.Size()
		}
	}
	return sum
}

// lastMessage returns the alarm or else the last line of the newest log, with the log's name.
func lastMessage(tails []logTail) string {
	var newest logTail
	for _, t := range tails {
		if len(t.lines) > 0 && t.written.After(newest.written) {
			newest = t
		}
	}
	if len(newest.lines) == 0 {
		return "nothing in its logs"
	}
	message := newest.lines[len(newest.lines)-1]
	for _, line := range newest.lines {
		if alarm.MatchString(line) {
			message = line
		}
	}
	return newest.name + ": " + message
}

// diagnosis describes a node that is given up: the status of its machine, and the ends of its logs.
func (o *Orchestrator) diagnosis(n state.Node, s nodeState, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s; power-cycled %d times", n.Name, o.machineStatus(n, s, now), s.powerCycles)
	for _, t := range o.nodeTails(n) {
		switch {
		case t.written.IsZero() && t.name == "qemu":
			// QEMU logs only errors.
		case t.written.IsZero():
			fmt.Fprintf(&b, "\n  %s: it has logged nothing", t.name)
		default:
			fmt.Fprintf(&b, "\n  %s, written %s ago:\n    %s", t.name, seconds(now.Sub(t.written)), strings.Join(t.lines, "\n    "))
		}
	}
	return b.String()
}

// machineStatus shows whether a machine hangs, is busy or has ended.
func (o *Orchestrator) machineStatus(n state.Node, s nodeState, now time.Time) string {
	r, ok := o.Lab.Parts().Get(n.Part())
	if !ok {
		return "its machine is stopped"
	}
	usage, alive := r.Usage()
	if !alive {
		return "its machine has ended"
	}
	return fmt.Sprintf("no progress for %s (its machine, pid %d: state %s, used %s of processor time since then)",
		seconds(s.idle(now)), r.PID, usage.State, seconds(max(0, usage.CPU-s.cpu)))
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.0f s", d.Seconds()) }

// bootMark begins the lines that the lab writes into a console's log.
const bootMark = "===="

// markConsole writes a line with a bootMark between two boots.
func (o *Orchestrator) markConsole(n state.Node, text string) error {
	f, err := os.OpenFile(machine.LogFile(o.Lab, n, machine.Console), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("writing to the console's log of %s: %w", n.Name, err)
	}
	_, err = fmt.Fprintf(f, "\n%s %s lab: %s\n", bootMark, time.Now().UTC().Format(time.RFC3339), text)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("writing to the console's log of %s: %w", n.Name, err)
	}
	return nil
}
