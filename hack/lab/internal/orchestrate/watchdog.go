package orchestrate

import "time"

// What is asked of a node that is awaited.
const (
	// nodeLimit is generous: an emulated machine on a busy host boots slowly.
	nodeLimit = 30 * time.Minute
	// quietLimit is longer than any silence of a boot that works in the end. The
	// longest are the initrd's: it gives its udev 120 s to settle, 121 to end.
	quietLimit = 150 * time.Second
	// maxPowerCycles is for each node and wait. A node that hangs three times
	// in a row does not do so by chance.
	maxPowerCycles = 2
	// secondChance is what a power-cycled node gets at least.
	secondChance = 5 * time.Minute
	// lookLimit is longer than any time between two looks. More has passed when
	// this whole machine stood still, and its nodes with it.
	lookLimit = 30 * time.Second
)

// sign grows or changes as long as anything goes on in a node.
type sign struct {
	logged    int64     // bytes in the logs of its console and programs
	heartbeat time.Time // by the node's own clock; zero before the first
}

// sighting is what one look at an awaited node shows.
type sighting struct {
	at    time.Time
	sign  sign
	cpu   time.Duration // used by its machine since that was started
	ended bool          // its machine has ended
	ready bool
	// blind: the apiserver does not answer. Nobody is blamed for a heartbeat
	// that could not be seen.
	blind bool
}

// vigil is what is known of an awaited node from one look to the next.
type vigil struct {
	deadline    time.Time
	lastLook    time.Time
	lastSign    time.Time     // when the sign last changed
	sign        sign          // what it was then
	cpu         time.Duration // and the processor time that its machine had used
	isReady     bool
	wasReady    bool // at least once in this wait
	powerCycles int
}

func newVigil(now time.Time) vigil {
	return vigil{deadline: now.Add(nodeLimit), lastLook: now, lastSign: now}
}

// after is the vigil with what a look has shown.
func (v vigil) after(s sighting) vigil {
	if pause := s.at.Sub(v.lastLook); pause > lookLimit {
		v.lastSign = v.lastSign.Add(pause)
	}
	v.lastLook = s.at
	if s.blind {
		s.sign.heartbeat = v.sign.heartbeat
	}
	if s.sign != v.sign {
		v.lastSign, v.sign, v.cpu = s.at, s.sign, s.cpu
	}
	v.isReady, v.wasReady = s.ready, v.wasReady || s.ready
	return v
}

// afterPowerCycle is the vigil over the machine that was just started again.
func (v vigil) afterPowerCycle(now time.Time) vigil {
	v.powerCycles++
	v.lastLook, v.lastSign, v.cpu = now, now, 0
	if chance := now.Add(secondChance); chance.After(v.deadline) {
		v.deadline = chance
	}
	return v
}

// quiet is how long the node has given no sign of life.
func (v vigil) quiet(now time.Time) time.Duration { return now.Sub(v.lastSign) }

// verdict is what to do about an awaited node.
type verdict int

const (
	keepWaiting verdict = iota
	powerCycle
	giveUp
)

// judge decides about a node by its latest sighting:
//
//	machine ended             power-cycle, after the last one give up
//	deadline passed           give up
//	was Ready in this wait    wait, its machine has work to lose
//	gives signs of life       wait, however slow it is
//	no sign for quietLimit    power-cycle, after the last one wait
func (v vigil) judge(s sighting) verdict {
	mayCycle := v.powerCycles < maxPowerCycles
	switch {
	case s.ready:
		return keepWaiting
	case s.at.After(v.deadline), s.ended && !mayCycle:
		return giveUp
	case s.ended:
		return powerCycle
	case v.wasReady, s.blind, !mayCycle, v.quiet(s.at) < quietLimit:
		return keepWaiting
	}
	return powerCycle
}
