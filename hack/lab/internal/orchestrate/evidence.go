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
	lines   []string  // the last meaningful ones, oldest first
	written time.Time // zero when there is no log
}

// How much of a log is read and told. What outlives a failed run in CI is
// about fifty lines.
const (
	tailBytes = 16 << 10
	tailRunes = 200
)

// readTail reads the end of a log. One that cannot be read is like none: this
// is for telling about a failure, not for adding one.
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
	tail.lines, tail.written = meaningful(string(data), lines), info.ModTime()
	return tail
}

var (
	// Escape sequences, and whatever else is not text.
	notText = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
	// What a kernel says when it is in trouble, and a node's boot, too. Pages of
	// registers and calls follow.
	alarm = regexp.MustCompile(`Kernel panic|BUG:|Oops|rcu: INFO|FAILED|[Gg]ave up`)
)

// meaningful returns the last lines of a log that say something, as many as
// wanted. An alarm further up takes the place of the first.
func meaningful(log string, want int) []string {
	var all []string
	last := -1 // index of the last alarm
	for line := range strings.SplitSeq(log, "\n") {
		line = shorten(strings.TrimSpace(notText.ReplaceAllString(line, "")))
		if line == "" || len(all) > 0 && all[len(all)-1] == line {
			continue
		}
		switch {
		case strings.HasPrefix(line, bootMark):
			last = -1 // that was an earlier boot's
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

// nodeTails are the logs that show what a node did last. kube-proxy starts
// with the kubelet and tells nothing more.
func (o *Orchestrator) nodeTails(n state.Node) []logTail {
	return []logTail{
		readTail("qemu", o.Lab.LogFile(n.Part()), 2),
		readTail("console", machine.LogFile(o.Lab, n, machine.Console), 4),
		readTail("containerd", machine.LogFile(o.Lab, n, "containerd"), 2),
		readTail("kubelet", machine.LogFile(o.Lab, n, "kubelet"), 4),
	}
}

// loggedBytes is how much a node has said so far.
func (o *Orchestrator) loggedBytes(n state.Node) int64 {
	var sum int64
	for _, log := range append(machine.GuestLogs(), machine.Console) {
		if info, err := os.Stat(machine.LogFile(o.Lab, n, log)); err == nil {
			sum += info.Size()
		}
	}
	return sum
}

// lastWord is what the newest log ends with, or its alarm, and whose it is.
func lastWord(tails []logTail) string {
	var newest logTail
	for _, t := range tails {
		if len(t.lines) > 0 && t.written.After(newest.written) {
			newest = t
		}
	}
	if len(newest.lines) == 0 {
		return "nothing in its logs"
	}
	word := newest.lines[len(newest.lines)-1]
	for _, line := range newest.lines {
		if alarm.MatchString(line) {
			word = line
		}
	}
	return newest.name + ": " + word
}

// evidence tells about a node that was given up: what its machine does, and
// what it said last.
func (o *Orchestrator) evidence(n state.Node, v vigil, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s; power-cycled %d times", n.Name, o.machineText(n, v, now), v.powerCycles)
	for _, t := range o.nodeTails(n) {
		switch {
		case t.written.IsZero() && t.name == "qemu":
			// It says something only when something is wrong.
		case t.written.IsZero():
			fmt.Fprintf(&b, "\n  %s: it has logged nothing", t.name)
		default:
			fmt.Fprintf(&b, "\n  %s, written %s ago:\n    %s", t.name, seconds(now.Sub(t.written)), strings.Join(t.lines, "\n    "))
		}
	}
	return b.String()
}

// machineText tells a machine that hangs from one that is busy, and both from
// one that has ended.
func (o *Orchestrator) machineText(n state.Node, v vigil, now time.Time) string {
	r, ok := o.Lab.Parts().Get(n.Part())
	if !ok {
		return "its machine is stopped"
	}
	usage, alive := r.Usage()
	if !alive {
		return "its machine has ended"
	}
	return fmt.Sprintf("no sign of life for %s (its machine, pid %d: state %s, used %s of processor time since then)",
		seconds(v.quiet(now)), r.PID, usage.State, seconds(max(0, usage.CPU-v.cpu)))
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.0f s", d.Seconds()) }

// bootMark begins a line of the lab's own in a console's log.
const bootMark = "===="

// markConsole writes such a line between two boots.
func (o *Orchestrator) markConsole(n state.Node, text string) error {
	f, err := os.OpenFile(machine.LogFile(o.Lab, n, machine.Console), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("writing to the console's log of %s: %w", n.Name, err)
	}
	_, err = fmt.Fprintf(f, "\n==== %s lab: %s\n", time.Now().UTC().Format(time.RFC3339), text)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("writing to the console's log of %s: %w", n.Name, err)
	}
	return nil
}
