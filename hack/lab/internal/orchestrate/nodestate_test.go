package orchestrate

import (
	"testing"
	"time"
)

var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestNextAction(t *testing.T) {
	late := begin.Add(nodeLimit + time.Second)
	idle := begin.Add(progressLimit)
	tests := map[string]struct {
		state       nodeState
		observation observation
		want        action
	}{
		"a Ready node": {newNodeState(begin), observation{at: late, ready: true}, keepWaiting},
		"a new node":   {newNodeState(begin), observation{at: begin}, keepWaiting},
		"a node that is idle for less than the limit":          {newNodeState(begin), observation{at: idle.Add(-time.Second)}, keepWaiting},
		"a node that hangs":                                    {newNodeState(begin), observation{at: idle}, powerCycle},
		"a node that hangs for the second time":                {nodeState{deadline: late, lastProgress: begin, powerCycles: 1}, observation{at: idle}, powerCycle},
		"a node that hangs for the third time":                 {nodeState{deadline: late, lastProgress: begin, powerCycles: 2}, observation{at: idle}, keepWaiting},
		"an idle node that was Ready before":                   {nodeState{deadline: late, lastProgress: begin, wasReady: true}, observation{at: idle}, keepWaiting},
		"an idle node whose heartbeat cannot be read":          {newNodeState(begin), observation{at: idle, apiDown: true}, keepWaiting},
		"a machine that ended":                                 {newNodeState(begin), observation{at: begin, ended: true}, powerCycle},
		"a machine that ended while the apiserver is down":     {newNodeState(begin), observation{at: begin, ended: true, apiDown: true}, powerCycle},
		"a machine that ended after its node was Ready":        {nodeState{deadline: late, lastProgress: begin, wasReady: true}, observation{at: begin, ended: true}, powerCycle},
		"a machine that ended for the third time":              {nodeState{deadline: late, lastProgress: begin, powerCycles: 2}, observation{at: begin, ended: true}, giveUp},
		"a machine that ended after the deadline":              {newNodeState(begin), observation{at: late, ended: true}, giveUp},
		"a node that is not Ready at the deadline":             {newNodeState(begin), observation{at: late}, giveUp},
		"the deadline applies while the apiserver is down":     {newNodeState(begin), observation{at: late, apiDown: true}, giveUp},
		"the deadline applies to a node that was Ready before": {nodeState{deadline: begin, wasReady: true}, observation{at: late}, giveUp},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.state.next(tt.observation); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

// guest simulates a node: what is observed of it after its machine has run for some time since its nth
// start.
type guest func(boot int, running time.Duration) observation

// wait observes a guest once per second until it is Ready or given up.
func wait(g guest) (powerCycles []time.Duration, took time.Duration, last action) {
	s, started := newNodeState(begin), begin
	for now := begin; ; now = now.Add(time.Second) {
		o := g(s.powerCycles, now.Sub(started))
		o.at = now
		s = s.observed(o)
		switch last = s.next(o); {
		case last == powerCycle:
			powerCycles = append(powerCycles, now.Sub(begin))
			s, started = s.restarted(now), now
		case last == giveUp, o.ready:
			return powerCycles, now.Sub(begin), last
		}
	}
}

func TestSlowNodeIsNotPowerCycled(t *testing.T) {
	cycles, took, last := wait(func(_ int, running time.Duration) observation {
		const pace = progressLimit - 10*time.Second
		return observation{progress: progress{logged: int64(running / pace)}, ready: running > nodeLimit-time.Minute}
	})
	if len(cycles) != 0 || last != keepWaiting || took > nodeLimit {
		t.Errorf("power-cycled at %v, action %d after %s", cycles, last, took)
	}
}

func TestNodeWithHeartbeatsIsNotPowerCycled(t *testing.T) {
	cycles, _, last := wait(func(_ int, running time.Duration) observation {
		return observation{progress: progress{heartbeat: begin.Add(running.Truncate(10 * time.Second))}}
	})
	if len(cycles) != 0 || last != giveUp {
		t.Errorf("power-cycled at %v, action %d", cycles, last)
	}
}

func TestNodeThatHangsOnceIsReadyAfterOnePowerCycle(t *testing.T) {
	const stuck, boot = 20 * time.Second, 40 * time.Second
	cycles, took, last := wait(func(n int, running time.Duration) observation {
		if n == 0 {
			return observation{progress: progress{logged: int64(min(running, stuck))}}
		}
		return observation{progress: progress{logged: int64(running)}, ready: running >= boot}
	})
	if len(cycles) != 1 || cycles[0] != stuck+progressLimit || took != cycles[0]+boot || last != keepWaiting {
		t.Errorf("power-cycled at %v, action %d after %s", cycles, last, took)
	}
}

func TestNodeThatAlwaysHangsIsGivenUp(t *testing.T) {
	cycles, took, last := wait(func(int, time.Duration) observation { return observation{} })
	if len(cycles) != maxPowerCycles || took > nodeLimit+time.Second || last != giveUp {
		t.Errorf("power-cycled at %v, action %d after %s", cycles, last, took)
	}
}

func TestMachineThatAlwaysEndsIsGivenUpAtOnce(t *testing.T) {
	cycles, took, last := wait(func(_ int, running time.Duration) observation { return observation{ended: running > time.Second} })
	if len(cycles) != maxPowerCycles || took > time.Minute || last != giveUp {
		t.Errorf("power-cycled at %v, action %d after %s", cycles, last, took)
	}
}

func TestLatePowerCycleExtendsTheWait(t *testing.T) {
	const stuck, boot = nodeLimit - progressLimit, 4 * time.Minute
	cycles, took, last := wait(func(n int, running time.Duration) observation {
		return observation{progress: progress{logged: int64(min(running, stuck))}, ready: n == 1 && running >= boot}
	})
	if len(cycles) != 1 || last != keepWaiting || took != nodeLimit+boot {
		t.Errorf("power-cycled at %v, action %d after %s", cycles, last, took)
	}
}

func TestSuspensionOfThisMachineIsNotIdleTime(t *testing.T) {
	s := newNodeState(begin)
	for at := begin; at.Before(begin.Add(time.Minute)); at = at.Add(time.Second) {
		s = s.observed(observation{at: at})
	}
	resumed := observation{at: begin.Add(time.Minute + progressLimit)}
	if got := s.observed(resumed).next(resumed); got != keepWaiting {
		t.Errorf("action %d after a pause, want %d", got, keepWaiting)
	}
}

func TestApiserverThatAnswersAgainIsNoProgress(t *testing.T) {
	heartbeat := progress{heartbeat: begin}
	s := newNodeState(begin).observed(observation{at: begin.Add(time.Second), progress: heartbeat})
	s = s.observed(observation{at: begin.Add(2 * time.Second), apiDown: true})
	s = s.observed(observation{at: begin.Add(3 * time.Second), progress: heartbeat})
	if got := s.idle(begin.Add(3 * time.Second)); got != 2*time.Second {
		t.Errorf("idle for %s, want 2 s", got)
	}
}
