//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"time"
)

// allowance is the time by which the writer may pause longer than without a fault.
type allowance struct {
	wait time.Duration // of timers, and of other programs
	work time.Duration // of processors
}

// What faults may cost. On nodes without KVM all processors are emulated, so the work may take longer by
// the factor below, and waits may not. The pauses without a fault are measured in each run.
const (
	// emulated keeps the allowance below the 3 s that the kernel's NFS client waits after a refused
	// connect, so that a closed port is also found on emulated nodes.
	emulated = 2
	// work starts a program or two, and makes a TLS connection.
	work = time.Second
)

var (
	// momentary: connections end or listeners are handed over, and all processes react at once.
	momentary = allowance{work: work}
	// silence: the interval and both timeouts of probes are 4.5 s; 8 s in all.
	silence = allowance{wait: 5 * time.Second, work: 3 * work}
)

// writer is the StatefulSet that writes while faults happen to its node.
type writer struct {
	directory
	node        string
	isEmulated  bool
	undisturbed time.Duration // the longest pause without a fault
}

func (d directory) writer(node string) *writer {
	d.lab.Helper()
	output := d.lab.onNode(node, "grep -c 'QEMU TCG' /proc/cpuinfo || true")
	return &writer{directory: d, node: node, isEmulated: output != "0"}
}

// measureUndisturbed measures the longest pause while nothing fails that the writer uses.
func (w *writer) measureUndisturbed(duration time.Duration) {
	w.lab.Helper()
	before := len(w.lines())
	all := w.waitForWriting(duration)
	w.undisturbed = longestPause(all, before)
	w.lab.Logf("PAUSE %5.2f s, %4d lines: undisturbed for %s", w.undisturbed.Seconds(), len(all)-before, duration)
}

// expectPause causes a fault, and expects no longer pause than is allowed.
func (w *writer) expectPause(fault string, allowed allowance, happen func()) {
	w.lab.Helper()
	pause, lines := w.pauseDuring(happen)
	w.checkPause(fault, pause, lines, allowed)
}

func (w *writer) checkPause(fault string, pause time.Duration, lines int, allowed allowance) {
	w.lab.Helper()
	bound := w.undisturbed + allowed.wait + allowed.work
	if w.isEmulated {
		bound += (emulated - 1) * allowed.work
	}
	output := fmt.Sprintf("PAUSE %5.2f s (undisturbed %.2f s, bound %.2f s), %4d lines: %s",
		pause.Seconds(), w.undisturbed.Seconds(), bound.Seconds(), lines, fault)
	w.lab.Log(output)
	// In the short run, bursts of claims share the emulated nodes with the writer.
	if pause > bound && *long {
		w.lab.Errorf("too long: %s", output)
	}
}

// logPause calls happen, waits until the writer continues, and prints the longest pause.
func (d directory) logPause(event string, happen func()) {
	d.lab.Helper()
	pause, lines := d.pauseDuring(happen)
	d.lab.Logf("PAUSE %5.2f s, %4d lines: %s", pause.Seconds(), lines, event)
}

// pauseDuring returns the longest pause from before happen until the writer continues after it.
func (d directory) pauseDuring(happen func()) (pause time.Duration, lines int) {
	d.lab.Helper()
	const enough = 10 // the pause may come a little later
	before := len(d.lines())
	happen()
	all := d.waitForLines(len(d.lines()) + enough)
	return longestPause(all, before), len(all) - before
}

// waitForWriting waits until the writer has written for so long by its own clock.
func (d directory) waitForWriting(duration time.Duration) (all []writtenLine) {
	d.lab.Helper()
	all = d.waitForLines(1)
	begin := all[len(all)-1].at
	d.lab.eventually("the writer to write for "+duration.String(), func() string {
		all = d.lines()
		if gone := all[len(all)-1].at - begin; gone < duration {
			return "it has written for " + gone.String()
		}
		return ""
	})
	return all
}

// lines returns the lines on the server, which must be numbered without a gap.
func (d directory) lines() []writtenLine {
	d.lab.Helper()
	text, err := os.ReadFile(d.file("lines"))
	if err != nil && !os.IsNotExist(err) {
		d.lab.Fatal(err)
	}
	all, err := parseLines(string(text))
	if err != nil {
		d.lab.Fatal(err)
	}
	return all
}

// waitForLines waits until the server has so many lines.
func (d directory) waitForLines(number int) (all []writtenLine) {
	d.lab.Helper()
	d.lab.eventually("the writer to continue", func() string {
		if all = d.lines(); len(all) < number {
			return fmt.Sprintf("there are %d lines, want %d", len(all), number)
		}
		return ""
	})
	return all
}
