package orchestrate

import "time"

// The limits of waiting for a node.
const (
	// nodeLimit is generous, because an emulated machine on a busy host boots slowly.
	nodeLimit = 30 * time.Minute
	// progressLimit is longer than any pause of a boot that succeeds in the end. The longest pauses are
	// the initrd's, which waits 120 s for udev to settle and 121 s for it to end.
	progressLimit = 150 * time.Second
	// maxPowerCycles is per node and wait. A node that hangs three times in a row does not hang by
	// chance.
	maxPowerCycles = 2
	// restartLimit is the least time that a power-cycled node gets.
	restartLimit = 5 * time.Minute
	// pauseLimit is longer than any time between two observations. If more has passed, this whole
	// machine was suspended, and its nodes with it.
	pauseLimit = 30 * time.Second
)

// progress changes as long as a node does anything.
type progress struct {
	logged    int64     // bytes in the logs of its console and programs
	heartbeat time.Time // by the node's own clock; zero before the first
}

// observation is the state of an awaited node at one moment.
type observation struct {
	at       time.Time
	progress progress
	cpu      time.Duration // used by its machine since the machine's start
	ended    bool          // its machine has ended
	ready    bool
	apiDown  bool // the apiserver does not answer, so heartbeats cannot be read
}

// nodeState is the history of an awaited node.
type nodeState struct {
	deadline     time.Time
	lastObserved time.Time
	lastProgress time.Time     // when progress last changed
	progress     progress      // its value then
	cpu          time.Duration // the processor time that its machine had used then
	isReady      bool
	wasReady     bool // at least once in this wait
	powerCycles  int
}

func newNodeState(now time.Time) nodeState {
	return nodeState{deadline: now.Add(nodeLimit), lastObserved: now, lastProgress: now}
}

// observed returns the state after an observation.
func (s nodeState) observed(o observation) nodeState {
	if pause := o.at.Sub(s.lastObserved); pause > pauseLimit {
		s.lastProgress = s.lastProgress.Add(pause)
	}
	s.lastObserved = o.at
	if o.apiDown {
		o.progress.heartbeat = s.progress.heartbeat
	}
	if o.progress != s.progress {
		s.lastProgress, s.progress, s.cpu = o.at, o.progress, o.cpu
	}
	s.isReady, s.wasReady = o.ready, s.wasReady || o.ready
	return s
}

// restarted returns the state after a power cycle.
func (s nodeState) restarted(now time.Time) nodeState {
	s.powerCycles++
	s.lastObserved, s.lastProgress, s.cpu = now, now, 0
	if limit := now.Add(restartLimit); limit.After(s.deadline) {
		s.deadline = limit
	}
	return s
}

// idle returns the time since the node last made progress.
func (s nodeState) idle(now time.Time) time.Duration { return now.Sub(s.lastProgress) }

// action is the next step for an awaited node.
type action int

const (
	keepWaiting action = iota
	powerCycle
	giveUp
)

// next decides about a node by its latest observation:
//
//	machine ended                  power-cycle, after the last power cycle give up
//	deadline passed                give up
//	was Ready in this wait         wait, a power cycle could lose its pods' work
//	makes progress                 wait, however slow it is
//	no progress in progressLimit   power-cycle, after the last power cycle wait
func (s nodeState) next(o observation) action {
	mayCycle := s.powerCycles < maxPowerCycles
	switch {
	case o.ready:
		return keepWaiting
	case o.at.After(s.deadline), o.ended && !mayCycle:
		return giveUp
	case o.ended:
		return powerCycle
	case s.wasReady, o.apiDown, !mayCycle, s.idle(o.at) < progressLimit:
		return keepWaiting
	}
	return powerCycle
}
