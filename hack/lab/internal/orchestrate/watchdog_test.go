package orchestrate

import (
	"testing"
	"time"
)

var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestJudge(t *testing.T) {
	late := begin.Add(nodeLimit + time.Second)
	quiet := begin.Add(quietLimit)
	tests := map[string]struct {
		vigil vigil
		look  sighting
		want  verdict
	}{
		"a Ready node is left alone":                          {newVigil(begin), sighting{at: late, ready: true}, keepWaiting},
		"a new node has time":                                 {newVigil(begin), sighting{at: begin}, keepWaiting},
		"a node that is quiet for less than the limit":        {newVigil(begin), sighting{at: quiet.Add(-time.Second)}, keepWaiting},
		"a node that hangs":                                   {newVigil(begin), sighting{at: quiet}, powerCycle},
		"a node that hangs for the second time":               {vigil{deadline: late, lastSign: begin, powerCycles: 1}, sighting{at: quiet}, powerCycle},
		"a node that hangs for the third time":                {vigil{deadline: late, lastSign: begin, powerCycles: 2}, sighting{at: quiet}, keepWaiting},
		"a quiet node that was Ready before":                  {vigil{deadline: late, lastSign: begin, wasReady: true}, sighting{at: quiet}, keepWaiting},
		"a quiet node whose heartbeat nobody can see":         {newVigil(begin), sighting{at: quiet, blind: true}, keepWaiting},
		"a machine that ended":                                {newVigil(begin), sighting{at: begin, ended: true}, powerCycle},
		"a machine that ended while the apiserver was away":   {newVigil(begin), sighting{at: begin, ended: true, blind: true}, powerCycle},
		"a machine that ended after its node was Ready":       {vigil{deadline: late, lastSign: begin, wasReady: true}, sighting{at: begin, ended: true}, powerCycle},
		"a machine that ended for the third time":             {vigil{deadline: late, lastSign: begin, powerCycles: 2}, sighting{at: begin, ended: true}, giveUp},
		"a machine that ended after the deadline":             {newVigil(begin), sighting{at: late, ended: true}, giveUp},
		"a node that is not Ready at the deadline":            {newVigil(begin), sighting{at: late}, giveUp},
		"the deadline holds when the apiserver is away":       {newVigil(begin), sighting{at: late, blind: true}, giveUp},
		"the deadline holds for a node that was Ready before": {vigil{deadline: begin, wasReady: true}, sighting{at: late}, giveUp},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.vigil.judge(tt.look); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

// guest plays a node: what a look at it shows so long after its machine was
// started for the nth time.
type guest func(boot int, running time.Duration) sighting

// wait looks at a guest once a second until it is Ready or given up, and
// tells how that came about.
func wait(g guest) (powerCycles []time.Duration, took time.Duration, last verdict) {
	v, started := newVigil(begin), begin
	for now := begin; ; now = now.Add(time.Second) {
		s := g(v.powerCycles, now.Sub(started))
		s.at = now
		v = v.after(s)
		switch last = v.judge(s); {
		case last == powerCycle:
			powerCycles = append(powerCycles, now.Sub(begin))
			v, started = v.afterPowerCycle(now), now
		case last == giveUp, s.ready:
			return powerCycles, now.Sub(begin), last
		}
	}
}

func TestASlowNodeIsNeverPowerCycled(t *testing.T) {
	cycles, took, last := wait(func(_ int, running time.Duration) sighting {
		const pace = quietLimit - 10*time.Second
		return sighting{sign: sign{logged: int64(running / pace)}, ready: running > nodeLimit-time.Minute}
	})
	if len(cycles) != 0 || last != keepWaiting || took > nodeLimit {
		t.Errorf("power-cycled at %v, verdict %d after %s", cycles, last, took)
	}
}

func TestAHeartbeatAloneKeepsANodeFromBeingPowerCycled(t *testing.T) {
	cycles, _, last := wait(func(_ int, running time.Duration) sighting {
		return sighting{sign: sign{heartbeat: begin.Add(running.Truncate(10 * time.Second))}}
	})
	if len(cycles) != 0 || last != giveUp {
		t.Errorf("power-cycled at %v, verdict %d", cycles, last)
	}
}

func TestANodeThatHangsOnceIsReadyAfterOnePowerCycle(t *testing.T) {
	const stuck, boot = 20 * time.Second, 40 * time.Second
	cycles, took, last := wait(func(n int, running time.Duration) sighting {
		if n == 0 {
			return sighting{sign: sign{logged: int64(min(running, stuck))}}
		}
		return sighting{sign: sign{logged: int64(running)}, ready: running >= boot}
	})
	if len(cycles) != 1 || cycles[0] != stuck+quietLimit || took != cycles[0]+boot || last != keepWaiting {
		t.Errorf("power-cycled at %v, verdict %d after %s", cycles, last, took)
	}
}

func TestANodeThatAlwaysHangsIsGivenUp(t *testing.T) {
	cycles, took, last := wait(func(int, time.Duration) sighting { return sighting{} })
	if len(cycles) != maxPowerCycles || took > nodeLimit+time.Second || last != giveUp {
		t.Errorf("power-cycled at %v, verdict %d after %s", cycles, last, took)
	}
}

func TestAMachineThatAlwaysEndsIsGivenUpAtOnce(t *testing.T) {
	cycles, took, last := wait(func(_ int, running time.Duration) sighting { return sighting{ended: running > time.Second} })
	if len(cycles) != maxPowerCycles || took > time.Minute || last != giveUp {
		t.Errorf("power-cycled at %v, verdict %d after %s", cycles, last, took)
	}
}

func TestALatePowerCycleExtendsTheWait(t *testing.T) {
	const stuck, boot = nodeLimit - quietLimit, 4 * time.Minute
	cycles, took, last := wait(func(n int, running time.Duration) sighting {
		return sighting{sign: sign{logged: int64(min(running, stuck))}, ready: n == 1 && running >= boot}
	})
	if len(cycles) != 1 || last != keepWaiting || took != nodeLimit+boot {
		t.Errorf("power-cycled at %v, verdict %d after %s", cycles, last, took)
	}
}

func TestAPauseOfThisMachineIsNoSilence(t *testing.T) {
	v := newVigil(begin)
	for at := begin; at.Before(begin.Add(time.Minute)); at = at.Add(time.Second) {
		v = v.after(sighting{at: at})
	}
	resumed := sighting{at: begin.Add(time.Minute + quietLimit)}
	if got := v.after(resumed).judge(resumed); got != keepWaiting {
		t.Errorf("verdict %d after a pause, want %d", got, keepWaiting)
	}
}

func TestAnApiserverThatWasAwayIsNoSignOfLife(t *testing.T) {
	heartbeat := sign{heartbeat: begin}
	v := newVigil(begin).after(sighting{at: begin.Add(time.Second), sign: heartbeat})
	v = v.after(sighting{at: begin.Add(2 * time.Second), blind: true})
	v = v.after(sighting{at: begin.Add(3 * time.Second), sign: heartbeat})
	if got := v.quiet(begin.Add(3 * time.Second)); got != 2*time.Second {
		t.Errorf("quiet for %s, want 2 s", got)
	}
}
