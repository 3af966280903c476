package ports_test

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// step is one call of Assign and what was before it.
type step struct {
	*testing.T
	sim *simulation
	in  ports.Input
	old ports.Table
	out ports.Output
}

// check checks every invariant of Assign after one call.
func (s step) check() {
	s.Helper()
	s.nothingIsShared()
	s.nothingMoves()
	s.nothingIsTaken()
	s.nothingGoesEarly()
	s.unpinningProvesNothing()
	s.strangersProveNothing()
	s.retiredPortsComeLast()
	s.volumesFollow()
	s.tunnelsKeepAnAddress()
	s.secondCallChangesNothing()
	s.lostTableComesBack()
	if s.sim.sequence%4 == 0 { // alike from step to step
		s.orderDoesNotMatter()
	}
}

func (s step) nothingIsShared() {
	s.Helper()
	owners := map[int]ports.Key{}
	for _, key := range s.out.Table.Keys() {
		port, _ := s.out.Table.Port(key)
		if owner, shared := owners[port]; shared || port == 0 {
			s.Errorf("%s has port %d, like %s", key, port, owner)
		}
		if slices.Contains(s.out.Table.Retired, port) {
			s.Errorf("%s has port %d, which is retired", key, port)
		}
		owners[port] = key
	}
}

func (s step) nothingMoves() {
	s.Helper()
	for _, key := range s.old.Keys() {
		before, _ := s.old.Port(key)
		if after, ok := s.out.Table.Port(key); ok && after != before {
			s.Errorf("%s moved from %d to %d", key, before, after)
		}
	}
}

// nothingIsTaken: a new key's port is named by nothing else, except where its own volumes
// outvoted others, or an administrator chose the port of a volume without a file system.
func (s step) nothingIsTaken() {
	s.Helper()
	before := s.old.Owners()
	for _, key := range s.out.Table.Keys() {
		if _, had := s.old.Port(key); had {
			continue
		}
		port, _ := s.out.Table.Port(key)
		if owner, taken := before[port]; taken {
			s.Errorf("new %s has port %d of %s", key, port, owner)
		}
		chosen, _ := s.in.Pinned.Port(key)
		own := s.named(port, func(on ports.Key) bool { return on == key })
		if !own && s.named(port, func(on ports.Key) bool { return on != key && (chosen != port || on.FileSystem != "") }) {
			s.Errorf("new %s has port %d, which volumes of others name", key, port)
		}
		if port == wellknown.NFSPort || port == wellknown.AgentHTTPPort || slices.Contains(s.in.Range.Reserved, port) {
			s.Errorf("new %s has port %d, which no key may have", key, port)
		}
		if s.in.Range.NodePorts.Contains(port) && !own && chosen != port {
			s.Errorf("new %s has port %d, which a Service can have", key, port)
		}
	}
}

func (s step) named(port int, by func(ports.Key) bool) bool {
	return slices.ContainsFunc(s.in.Volumes, func(v ports.Volume) bool {
		return v.Loopback && v.Port == port && by(v.On)
	})
}

func (s step) nothingGoesEarly() {
	s.Helper()
	for _, key := range s.old.Keys() {
		_, pinned := s.in.Pinned.Targets[key.FileSystem]
		if _, stays := s.out.Table.Port(key); stays {
			continue
		}
		if _, stays := s.out.Table.Targets[key.FileSystem]; stays {
			if !s.in.Demand.Known || slices.Contains(s.in.Demand.AccessPoints, key) {
				s.Errorf("access point %s is gone", key)
			}
			continue
		}
		namedByVolume := slices.ContainsFunc(s.in.Volumes, func(v ports.Volume) bool {
			return v.Loopback && !v.Root && v.On.FileSystem == key.FileSystem
		})
		if pinned || namedByVolume || !s.in.Listing.Complete || len(s.in.Listing.FileSystems) == 0 ||
			!slices.Contains(s.in.Gone, key.FileSystem) || s.sim.lacking[key.FileSystem] < 3 {
			s.Errorf("%s is gone: pinned %v, named %v, lacking %d times", key, pinned, namedByVolume, s.sim.lacking[key.FileSystem])
		}
		if port, _ := s.old.Port(key); !slices.Contains(s.out.Table.Retired, port) {
			s.Errorf("%s is gone, and its port %d is not retired", key, port)
		}
	}
}

// unpinningProvesNothing of what is in use: the API does not know file systems of other accounts.
func (s step) unpinningProvesNothing() {
	s.Helper()
	if s.in.Table == nil {
		return
	}
	for _, id := range s.out.Gone {
		used := slices.Contains(s.in.Begun, id) || slices.ContainsFunc(s.in.Volumes, func(v ports.Volume) bool {
			return v.Loopback && !v.Root && v.On.FileSystem == id
		})
		if used && s.sim.foreign[id] {
			s.Errorf("%s is in use and counts as gone, because it is no longer pinned", id)
		}
	}
}

// strangersProveNothing: a table that knows its account takes nothing from another one's listing.
func (s step) strangersProveNothing() {
	s.Helper()
	foreign := strings.HasPrefix(s.in.Listing.Source, "9")
	if _, ours := s.old.Targets["fs-foreign-1"]; !foreign || s.old.Source != home || ours || !s.lists(s.old) {
		return
	}
	if s.out.Foreign == "" || s.out.Table.Source != home || len(s.out.Gone)+len(s.out.Confirm) > 0 || len(s.out.State.Absences) > len(s.in.State.Absences) {
		s.Errorf("another account's listing is used: %q, gone %v, to be confirmed %v", s.out.Foreign, s.out.Gone, s.out.Confirm)
	}
	for id, target := range s.out.Table.Targets {
		old, there := s.old.Targets[id]
		if strings.HasPrefix(id, "fs-foreign") || there && old.NotFoundSince.IsZero() && !target.NotFoundSince.IsZero() {
			s.Errorf("%s is %+v after another account's listing, before it was %+v", id, target, old)
		}
	}
}

// lists says whether there is a target that listings should show.
func (s step) lists(table ports.Table) bool {
	for id, target := range table.Targets {
		if _, pinned := s.in.Pinned.Targets[id]; !pinned && !target.PinnedOnly {
			return true
		}
	}
	return false
}

func (s step) retiredPortsComeLast() {
	s.Helper()
	used, before := s.out.Table.Owners(), s.old.Owners()
	for port, key := range used {
		own := s.named(port, func(on ports.Key) bool { return on == key })
		if chosen, _ := s.in.Pinned.Port(key); !slices.Contains(s.old.Retired, port) || own || chosen == port {
			continue
		}
		for other := s.in.Range.Base; other < s.in.Range.Base+s.in.Range.Count; other++ {
			_, taken := used[other]
			_, freed := before[other]
			if !taken && !freed && !slices.Contains(s.old.Retired, other) && (other < 20487 || other > 20489) &&
				!s.named(other, func(ports.Key) bool { return true }) {
				s.Errorf("%s got the retired port %d, though %d was never given", key, port, other)
			}
		}
	}
}

func (s step) volumesFollow() {
	s.Helper()
	for _, v := range apply(s.in, s.out).Volumes {
		if want, ok := s.out.Table.Port(v.On); ok && v.Loopback && v.Port != want {
			s.Errorf("volume %s on %s has port %d, not %d", v.Name, v.On, v.Port, want)
		}
	}
}

func (s step) tunnelsKeepAnAddress() {
	s.Helper()
	for id, target := range s.out.Table.Targets {
		if s.old.Targets[id].HasAddress() && !target.HasAddress() {
			s.Errorf("%s lost its addresses", id)
		}
	}
}

func (s step) tableCanBeRead() {
	s.Helper()
	encoded := ports.Encode(s.out.Table)
	decoded, err := ports.Decode(encoded)
	if err != nil {
		s.Fatalf("%v in:\n%s", err, encoded)
	}
	if !bytes.Equal(encoded, ports.Encode(decoded)) {
		s.Errorf("reads differently:\n%s", encoded)
	}
}

func (s step) orderDoesNotMatter() {
	s.Helper()
	in := s.in
	in.Volumes = slices.Clone(in.Volumes)
	slices.Reverse(in.Volumes)
	in.Listing.FileSystems = slices.Clone(in.Listing.FileSystems)
	slices.Reverse(in.Listing.FileSystems)
	out := ports.Assign(in)
	if reflect.DeepEqual(s.out, out) {
		return // cmp takes longer
	}
	if diff := cmp.Diff(s.out, out, compareTables); diff != "" {
		s.Errorf("another order gives another output:\n%s", diff)
	}
}

// secondCallChangesNothing, unless ports ran out: then freed ones are given, and that ends.
func (s step) secondCallChangesNothing() {
	s.Helper()
	in, out := s.in, s.out
	for range 3 {
		in = apply(in, out)
		out = ports.Assign(in)
		if !out.Changed && len(out.Corrections) == 0 && len(out.Events) == 0 {
			return
		}
		if !slices.ContainsFunc(s.out.Conditions, func(n ports.Event) bool { return n.Reason == wellknown.EventOutOfPorts }) {
			break
		}
	}
	s.Errorf("applied and done again:\n%s", cmp.Diff(s.out, out, compareTables))
}

// lostTableComesBack: volumes alone remember the port of everything that they name.
func (s step) lostTableComesBack() {
	s.Helper()
	in := apply(s.in, s.out)
	in.Table = nil
	in.Volumes = slices.DeleteFunc(slices.Clone(in.Volumes), func(v ports.Volume) bool {
		port, ok := s.out.Table.Port(v.On)
		return v.On.FileSystem != "" && (!ok || port != v.Port)
	})
	out := ports.Assign(in)
	homeless := map[string]bool{}
	for _, n := range out.Conditions {
		homeless[n.FileSystem] = n.Reason == wellknown.EventOutOfPorts
	}
	for _, v := range in.Volumes {
		got, _ := out.Table.Port(v.On)
		if v.Loopback && v.On.FileSystem != "" && got != v.Port && !homeless[v.On.FileSystem] {
			s.Errorf("rebuilt from volumes, %s has port %d, not %d", v.On, got, v.Port)
		}
	}
	for _, c := range out.Corrections {
		s.Errorf("rebuilt from volumes, %s is corrected from %d to %d", c.Volume, c.From, c.To)
	}
}

// live simulates a cluster for some steps and checks each.
func live(t *testing.T, d dice, steps int) {
	t.Helper()
	sim := newSimulation(d)
	for n := range steps {
		sim.happen()
		s := step{T: t, sim: sim, in: sim.in, out: ports.Assign(sim.in)}
		if len(s.out.Confirm) > 0 {
			sim.answer(s.out.Confirm)
			s.in, s.out = sim.in, ports.Assign(sim.in)
		}
		if sim.in.Table != nil {
			s.old = sim.in.Table.Clone()
		}
		s.check()
		if n == steps-1 { // slow, and a table grows with the steps
			s.tableCanBeRead()
		}
		if t.Failed() {
			t.Logf("step %d, volumes %v", sim.sequence, sim.in.Volumes)
			return
		}
		sim.accept(s.out)
	}
}
