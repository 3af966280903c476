//go:build e2e

package e2e

import (
	"fmt"
	"time"
)

// allowance is how much longer than undisturbed writing may pause because of a fault.
type allowance struct {
	wait time.Duration // of timers, and of what is not the product's
	work time.Duration // of processors
}

// What faults may cost. On nodes without KVM all processors are emulated, and the work is allowed to
// take longer by the factor below; waits are not. An undisturbed writer pauses there, too, which is
// measured in each run.
const (
	// emulated keeps what is allowed below the 3 s that the kernel's NFS client waits after a refused
	// connect: that a port was closed is to be seen also on emulated nodes.
	emulated = 2
	// work begins a program or two, and makes a TLS connection.
	work = time.Second
)

var (
	// momentary: connections end or listeners change hands, and all who have to act know it at once.
	momentary = allowance{work: work}
	// silence: the interval and both timeouts of probes are 4.5 s; 8 s in all.
	silence = allowance{wait: 5 * time.Second, work: 3 * work}
)

// writing is the scribe at work while faults happen to its node.
type writing struct {
	directory
	node       string
	isEmulated bool
	calm       time.Duration // the longest pause while nothing happened
}

func (d directory) writing(node string) *writing {
	d.lab.Helper()
	told := d.lab.onNode(node, "grep -c 'QEMU TCG' /proc/cpuinfo || true")
	return &writing{directory: d, node: node, isEmulated: told != "0"}
}

// measureCalm writes undisturbed: what the writer does not use may fail meanwhile.
func (w *writing) measureCalm(duration time.Duration) {
	w.lab.Helper()
	before := len(w.lines())
	all := w.goOn(duration)
	w.calm = longestPause(all, before)
	w.lab.Logf("PAUSE %5.2f s, %4d lines: undisturbed for %s", w.calm.Seconds(), len(all)-before, duration)
}

// wantPause makes a fault, and wants no longer pause than is allowed.
func (w *writing) wantPause(fault string, allowed allowance, happen func()) {
	w.lab.Helper()
	pause, lines := w.pauseOf(happen)
	w.judge(fault, pause, lines, allowed)
}

func (w *writing) judge(fault string, pause time.Duration, lines int, allowed allowance) {
	w.lab.Helper()
	bound := w.calm + allowed.wait + allowed.work
	if w.isEmulated {
		bound += (emulated - 1) * allowed.work
	}
	told := fmt.Sprintf("PAUSE %5.2f s (undisturbed %.2f s, bound %.2f s), %4d lines: %s",
		pause.Seconds(), w.calm.Seconds(), bound.Seconds(), lines, fault)
	w.lab.Log(told)
	// In the short run, bursts of claims share the emulated nodes with the writer.
	if pause > bound && *long {
		w.lab.Errorf("too long: %s", told)
	}
}

// wantLines makes something happen and waits until writing goes on; it prints the longest pause.
func (d directory) wantLines(event string, happen func()) {
	d.lab.Helper()
	pause, lines := d.pauseOf(happen)
	d.lab.Logf("PAUSE %5.2f s, %4d lines: %s", pause.Seconds(), lines, event)
}

// pauseOf is the longest pause from before something happens until writing goes on after it.
func (d directory) pauseOf(happen func()) (pause time.Duration, lines int) {
	d.lab.Helper()
	const enough = 10 // what happens may be felt a little later
	before := len(d.lines())
	happen()
	all := d.awaitLines(len(d.lines()) + enough)
	return longestPause(all, before), len(all) - before
}

// longestPause is that from the line before the one with this index.
func longestPause(all []written, from int) (pause time.Duration) {
	for i := max(from, 1); i < len(all); i++ {
		pause = max(pause, all[i].at-all[i-1].at)
	}
	return pause
}

// goOn waits until the scribe has written for so long by its own clock.
func (d directory) goOn(duration time.Duration) (all []written) {
	d.lab.Helper()
	all = d.awaitLines(1)
	begin := all[len(all)-1].at
	d.lab.eventually("the scribe to write for "+duration.String(), func() string {
		all = d.lines()
		if gone := all[len(all)-1].at - begin; gone < duration {
			return "it has written for " + gone.String()
		}
		return ""
	})
	return all
}
