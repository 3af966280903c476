package routing_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/tunnel/routing"
)

var (
	near   = routing.MountTarget{Address: address("10.0.1.4"), Zone: "b", Distance: routing.OwnZone}
	far    = routing.MountTarget{Address: address("10.0.0.4"), Zone: "a", Distance: routing.Elsewhere}
	farer  = routing.MountTarget{Address: address("10.0.2.4"), Zone: "c", Distance: routing.Elsewhere}
	places = []routing.MountTarget{near, far, farer}
)

func direct(n, f, e routing.Answer) map[netip.Addr]routing.Answer {
	return map[netip.Addr]routing.Answer{near.Address: n, far.Address: f, farer.Address: e}
}

func TestAfter(t *testing.T) {
	long := now.Add(-time.Hour)
	tests := map[string]struct {
		memory  routing.Memory
		finding routing.Finding
		step    routing.Step
		first   netip.Addr
	}{
		"well": {routing.Memory{}, routing.Finding{Well: true}, routing.Stay, netip.Addr{}},
		"well, the first refuses": {
			routing.Memory{}, routing.Finding{Well: true, Direct: direct(routing.Dead, routing.Answers, routing.Answers)},
			routing.Reorder, far.Address,
		},
		"well, the first refuses, others unknown": {
			routing.Memory{}, routing.Finding{Well: true, Direct: direct(routing.Dead, routing.Unclear, routing.Dead)},
			routing.Stay, netip.Addr{},
		},
		"old connections work, new ones do not": {
			routing.Memory{}, routing.Finding{Established: true, Direct: direct(routing.Dead, routing.Dead, routing.Answers)},
			routing.Reorder, farer.Address,
		},
		"old connections work, and nothing is better": {
			routing.Memory{}, routing.Finding{Established: true, Direct: direct(routing.Unclear, routing.Unclear, routing.Unclear)},
			routing.Stay, netip.Addr{},
		},
		"old connections are stuck": {
			routing.Memory{}, routing.Finding{Well: true, Stuck: true, Direct: direct(routing.Answers, routing.Answers, routing.Answers)},
			routing.Stay, netip.Addr{},
		},
		"old connections are stuck again": {
			routing.Memory{Doubts: 1}, routing.Finding{Well: true, Stuck: true, Direct: direct(routing.Answers, routing.Answers, routing.Answers)},
			routing.Renew, netip.Addr{},
		},
		"old connections are stuck again, after a restart just now": {
			routing.Memory{Doubts: 1, Restarts: 1, RestartedAt: now.Add(-14 * time.Second)},
			routing.Finding{Well: true, Stuck: true}, routing.Stay, netip.Addr{},
		},
		"dark": {
			routing.Memory{}, routing.Finding{Silent: true, Direct: direct(routing.Dead, routing.Answers, routing.Answers)},
			routing.Failover, far.Address,
		},
		"dark, and so is the next": {
			routing.Memory{}, routing.Finding{Silent: true, Direct: direct(routing.Dead, routing.Dead, routing.Answers)},
			routing.Failover, farer.Address,
		},
		"away and dark: the nearest comes first": {
			routing.Memory{First: far.Address}, routing.Finding{Silent: true, Direct: direct(routing.Answers, routing.Dead, routing.Answers)},
			routing.Failover, netip.Addr{},
		},
		"all dark": {
			routing.Memory{FailingSince: long}, routing.Finding{Silent: true, Direct: direct(routing.Dead, routing.Dead, routing.Dead)},
			routing.Stay, netip.Addr{},
		},
		"silent, though the server answers": {
			routing.Memory{}, routing.Finding{Silent: true, Direct: direct(routing.Answers, routing.Dead, routing.Dead)},
			routing.Stay, netip.Addr{},
		},
		"silent again, though the server answers": {
			routing.Memory{Doubts: 1}, routing.Finding{Silent: true, Direct: direct(routing.Answers, routing.Dead, routing.Dead)},
			routing.Renew, netip.Addr{},
		},
		"silent at first, now dark": {
			routing.Memory{Doubts: 1}, routing.Finding{Silent: true, Direct: direct(routing.Dead, routing.Answers, routing.Dead)},
			routing.Failover, far.Address,
		},
		"closed, though the server answers": {
			routing.Memory{FailingSince: long}, routing.Finding{Direct: direct(routing.Answers, routing.Answers, routing.Answers)},
			routing.Stay, netip.Addr{},
		},
		"silent, others unclear, not for long": {
			routing.Memory{}, routing.Finding{Silent: true, Direct: direct(routing.Dead, routing.Unclear, routing.Dead)},
			routing.Stay, netip.Addr{},
		},
		"silent, others unclear, for long": {
			routing.Memory{FailingSince: long}, routing.Finding{Silent: true, Direct: direct(routing.Dead, routing.Unclear, routing.Dead)},
			routing.Failover, far.Address,
		},
		"certificates that are not accepted": {
			routing.Memory{FailingSince: long}, routing.Finding{Unproven: true, Direct: direct(routing.Unproven, routing.Unproven, routing.Unproven)},
			routing.Stay, netip.Addr{},
		},
		"a certificate that is not accepted, others answer": {
			routing.Memory{}, routing.Finding{Direct: direct(routing.Unproven, routing.Answers, routing.Answers)},
			routing.Failover, far.Address,
		},
		"a certificate that is not accepted, others are unclear": {
			routing.Memory{FailingSince: long}, routing.Finding{Direct: direct(routing.Unproven, routing.Unclear, routing.Dead)},
			routing.Stay, netip.Addr{},
		},
		"a certificate that is not accepted, old connections work": {
			routing.Memory{}, routing.Finding{Established: true, Direct: direct(routing.Unproven, routing.Answers, routing.Answers)},
			routing.Reorder, far.Address,
		},
		"a certificate that is not accepted, something is open": {
			routing.Memory{}, routing.Finding{Open: true, Direct: direct(routing.Unproven, routing.Answers, routing.Answers)},
			routing.Reorder, far.Address,
		},
		"a certificate that is not accepted, but stunnel accepts it": {
			routing.Memory{}, routing.Finding{Well: true, Direct: direct(routing.Unproven, routing.Answers, routing.Answers)},
			routing.Stay, netip.Addr{},
		},
		"a certificate that only stunnel does not accept": {
			routing.Memory{}, routing.Finding{Unproven: true, Direct: direct(routing.Answers, routing.Answers, routing.Answers)},
			routing.Stay, netip.Addr{},
		},
		"a certificate that only stunnel does not accept, twice": {
			routing.Memory{Doubts: 1}, routing.Finding{Unproven: true, Direct: direct(routing.Answers, routing.Answers, routing.Answers)},
			routing.Failover, far.Address,
		},
		"a certificate that only stunnel does not accept, twice, nothing else answers": {
			routing.Memory{Doubts: 1}, routing.Finding{Unproven: true, Direct: direct(routing.Answers, routing.Unproven, routing.Dead)},
			routing.Stay, netip.Addr{},
		},
		"access is denied": {
			routing.Memory{FailingSince: long, Doubts: 1}, routing.Finding{Unproven: true, Direct: direct(routing.Unclear, routing.Answers, routing.Answers)},
			routing.Stay, netip.Addr{},
		},
		"restarted just now": {
			routing.Memory{Restarts: 1, RestartedAt: now.Add(-14 * time.Second)},
			routing.Finding{Silent: true, Direct: direct(routing.Dead, routing.Answers, routing.Answers)},
			routing.Stay, netip.Addr{},
		},
		"restarted some time ago": {
			routing.Memory{Restarts: 1, RestartedAt: now.Add(-15 * time.Second)},
			routing.Finding{Silent: true, Direct: direct(routing.Dead, routing.Answers, routing.Answers)},
			routing.Failover, far.Address,
		},
		"away, and the nearest is not known": {
			routing.Memory{First: far.Address, RestartedAt: long}, routing.Finding{Well: true}, routing.Stay, far.Address,
		},
		"away, and the nearest is well for long": {
			routing.Memory{First: far.Address, RestartedAt: long, NearestWellSince: now.Add(-5 * time.Minute)},
			routing.Finding{Well: true, Direct: map[netip.Addr]routing.Answer{near.Address: routing.Answers}},
			routing.Return, netip.Addr{},
		},
		"away, and the nearest fails again": {
			routing.Memory{First: far.Address, RestartedAt: long, NearestWellSince: now.Add(-5 * time.Minute)},
			routing.Finding{Well: true, Direct: map[netip.Addr]routing.Answer{near.Address: routing.Dead}},
			routing.Stay, far.Address,
		},
		"an old connection is far, and the nearest is well for long": {
			routing.Memory{RestartedAt: long, NearestWellSince: now.Add(-5 * time.Minute)},
			routing.Finding{Well: true, Astray: true, Direct: map[netip.Addr]routing.Answer{near.Address: routing.Answers, far.Address: routing.Answers}},
			routing.Return, netip.Addr{},
		},
		"an old connection was far, and has ended": {
			routing.Memory{RestartedAt: long, NearestWellSince: now.Add(-5 * time.Minute)},
			routing.Finding{Well: true},
			routing.Stay, netip.Addr{},
		},
		"led to a mount target that left the table": {
			routing.Memory{First: address("10.9.9.9")}, routing.Finding{Well: true}, routing.Stay, address("10.9.9.9"),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.finding.At = now
			got, step := tt.memory.After(tt.finding, places)
			if step != tt.step || got.First != tt.first {
				t.Errorf("got %q to %v, want %q to %v", step, got.First, tt.step, tt.first)
			}
			restarts := step == routing.Failover || step == routing.Renew || step == routing.Return
			if restarted := got.Serial > tt.memory.Serial; restarted != restarts {
				t.Errorf("after %q the serial went from %d to %d", step, tt.memory.Serial, got.Serial)
			}
		})
	}
}

// What was in doubt in one round must be so in the next: well in between begins anew.
func TestDoubtsAreInARow(t *testing.T) {
	stuck := routing.Finding{Well: true, Stuck: true}
	silent := routing.Finding{Silent: true, Direct: direct(routing.Answers, routing.Answers, routing.Answers)}
	well := routing.Finding{Well: true}
	tests := map[string]struct {
		findings []routing.Finding
		steps    []routing.Step
	}{
		"stuck twice":          {[]routing.Finding{stuck, stuck, stuck}, []routing.Step{routing.Stay, routing.Renew, routing.Stay}},
		"well in between":      {[]routing.Finding{stuck, well, stuck, stuck}, []routing.Step{routing.Stay, routing.Stay, routing.Stay, routing.Renew}},
		"silent and stuck":     {[]routing.Finding{silent, stuck}, []routing.Step{routing.Stay, routing.Renew}},
		"closed in between":    {[]routing.Finding{silent, {}, silent}, []routing.Step{routing.Stay, routing.Stay, routing.Stay}},
		"answered in between":  {[]routing.Finding{silent, {Established: true}, silent}, []routing.Step{routing.Stay, routing.Stay, routing.Stay}},
		"silent for two times": {[]routing.Finding{silent, silent}, []routing.Step{routing.Stay, routing.Renew}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			memory, steps := routing.Memory{}, []routing.Step(nil)
			for i, f := range tt.findings {
				f.At = now.Add(time.Duration(i) * 2 * time.Second)
				var step routing.Step
				memory, step = memory.After(f, places)
				steps = append(steps, step)
			}
			if diff := cmp.Diff(tt.steps, steps); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
		})
	}
}

// A mount target that comes and goes for a day must not take the tunnel with it.
func TestNoFlapping(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	memory, restarts := routing.Memory{}, 0
	var last time.Time
	for at := now; at.Before(now.Add(24 * time.Hour)); at = at.Add(10 * time.Second) {
		finding := routing.Finding{At: at, Well: true}
		if random.IntN(3) == 0 {
			finding = routing.Finding{At: at, Silent: true}
		}
		answers := func() routing.Answer { return []routing.Answer{routing.Answers, routing.Dead}[random.IntN(2)] }
		finding.Direct = direct(answers(), answers(), answers())
		var step routing.Step
		memory, step = memory.After(finding, places)
		if step == routing.Stay || step == routing.Reorder {
			continue
		}
		if gap := at.Sub(last); restarts > 0 && gap < 15*time.Second {
			t.Errorf("%s only %s after the one before", step, gap)
		}
		restarts, last = restarts+1, at
	}
	// 16 minutes apart are 90 a day; the first ones are closer.
	if restarts > 100 || restarts < 50 {
		t.Errorf("%d restarts in a day of coming and going", restarts)
	}
}

func TestRestartsAreForgiven(t *testing.T) {
	memory := routing.Memory{Restarts: 7, RestartedAt: now}
	for at := now; !at.After(now.Add(10 * time.Minute)); at = at.Add(10 * time.Second) {
		memory, _ = memory.After(routing.Finding{At: at, Well: true}, places)
	}
	if memory.Restarts != 0 {
		t.Errorf("%d restarts still count after 10 good minutes", memory.Restarts)
	}
}

func TestUnknownPlaceStaysWhereItIs(t *testing.T) {
	level := []routing.MountTarget{
		{Address: near.Address, Distance: routing.Elsewhere}, {Address: far.Address, Distance: routing.Elsewhere},
	}
	memory := routing.Memory{First: far.Address}
	for at := now; at.Before(now.Add(time.Hour)); at = at.Add(10 * time.Second) {
		var step routing.Step
		memory, step = memory.After(routing.Finding{At: at, Well: true, Direct: direct(routing.Answers, routing.Answers, routing.Answers)}, level)
		if step != routing.Stay {
			t.Fatalf("%s, although no mount target is nearer", step)
		}
	}
}

// The whole of a story, at the pace of probes.
func TestFailoverAndReturn(t *testing.T) {
	memory := routing.Memory{}
	var steps []string
	live := func(from, to time.Duration, finding routing.Finding) {
		for at := from; at < to; at += 10 * time.Second {
			finding.At = now.Add(at)
			var step routing.Step
			if memory, step = memory.After(finding, places); step != routing.Stay {
				steps = append(steps, fmt.Sprint(step, " after ", at))
			}
		}
	}
	nearDark := direct(routing.Dead, routing.Answers, routing.Answers)
	nearBack := map[netip.Addr]routing.Answer{near.Address: routing.Answers}
	nearBad := map[netip.Addr]routing.Answer{near.Address: routing.Dead}
	live(0, time.Minute, routing.Finding{Well: true})
	live(time.Minute, time.Minute+10*time.Second, routing.Finding{Silent: true, Direct: nearDark})
	live(70*time.Second, 3*time.Minute, routing.Finding{Well: true, Direct: nearBad})
	live(3*time.Minute, 7*time.Minute, routing.Finding{Well: true, Direct: nearBack})
	live(7*time.Minute, 7*time.Minute+10*time.Second, routing.Finding{Well: true, Direct: nearBad}) // begins anew
	live(7*time.Minute+10*time.Second, 20*time.Minute, routing.Finding{Well: true, Direct: nearBack})
	want := []string{"Failover after 1m0s", "Return after 12m10s"}
	if diff := cmp.Diff(want, steps); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if memory.First.IsValid() || memory.Serial != 2 {
		t.Errorf("got %+v, want the nearest first after two restarts", memory)
	}
}
