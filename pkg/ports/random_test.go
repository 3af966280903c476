package ports_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/ports"
)

// Thousands of clusters go through restarts, lost tables, partial listings, restored volumes
// and half-written outputs, and every step keeps every invariant.
func TestRandomHistoriesKeepInvariants(t *testing.T) {
	histories := uint64(2000)
	if testing.Short() {
		histories = 200
	}
	for seed := range histories {
		live(t, rand.New(rand.NewPCG(seed, 1)), 16)
		if t.Failed() {
			t.Fatalf("in history %d", seed)
		}
	}
}

// bytesDice takes its chances from a fuzz test's bytes, and is all zeros after them.
type bytesDice struct{ bytes []byte }

func (d *bytesDice) IntN(n int) int {
	if len(d.bytes) == 0 {
		return 0
	}
	first := d.bytes[0]
	d.bytes = d.bytes[1:]
	return int(first) % n
}

func FuzzAssign(f *testing.F) {
	for seed := range uint64(8) {
		chance := make([]byte, 200)
		random := rand.NewChaCha8([32]byte{byte(seed)})
		_, _ = random.Read(chance)
		f.Add(chance)
	}
	f.Fuzz(func(t *testing.T, chance []byte) {
		if len(chance) > 2000 {
			return
		}
		d := &bytesDice{chance}
		live(t, d, 8+len(chance)/8)
	})
}

// A backup is restored into a new cluster, whose discovery numbered the file systems first and
// in another order. In the end every volume is on the port of its own file system, and nothing else
// has changed its owner.
func TestRestoredCluster(t *testing.T) {
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 2))
		ids := make([]string, 2+random.IntN(6))
		for i := range ids {
			ids[i] = fmt.Sprintf("fs-%d", i)
		}
		fresh := ports.Assign(ports.Input{Listing: listing(ids...), Range: fullRange, Now: noon})
		in := apply(ports.Input{Listing: listing(ids...), Range: fullRange, Now: noon}, fresh)
		elsewhere := random.Perm(len(ids) + 3) // ports of the old cluster
		for i, id := range append(ids, "fs-unlisted") {
			for n := range 1 + random.IntN(3) {
				in.Volumes = append(in.Volumes, volume(fmt.Sprintf("v-%s-%d", id, n), id, 20490+elsewhere[i]))
			}
		}
		out := ports.Assign(in)
		now := portsOf(out.Table)
		for id, port := range portsOf(fresh.Table) {
			if now[id] != port {
				t.Fatalf("seed %d: %s moved from %d to %d", seed, id, port, now[id])
			}
		}
		in = apply(in, out)
		for _, v := range in.Volumes {
			if want, ok := in.Table.Port(v.On); !ok || v.Port != want {
				t.Fatalf("seed %d: volume %s has port %d, not %d", seed, v.Name, v.Port, want)
			}
		}
	}
}

var fullRange = ports.Range{Base: 20490, Count: 1000}

// With one port too few, one file system has none, and for all the others the output is the
// same as if it were not there.
func TestOutOfPortsLeavesOtherTargetsUnchanged(t *testing.T) {
	in := ports.Input{Listing: listing("fs-1", "fs-2", "fs-3"), Range: ports.Range{Base: 20490, Count: 3}, Now: noon}
	in = apply(in, ports.Assign(in))
	without := ports.Assign(in)
	in.Listing = listing("fs-0", "fs-1", "fs-2", "fs-3")
	with := ports.Assign(in)
	if diff := cmp.Diff(without.Table, with.Table, compareTables); diff != "" {
		t.Errorf("others were harmed (-without +with):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"OutOfPorts fs-0"}, outcomeOf(with).Events); diff != "" {
		t.Errorf("events mismatch (-want +got):\n%s", diff)
	}
}

// 10,000 volumes on 200 file systems are compared at every poll.
func BenchmarkAssign(b *testing.B) {
	var ids []string
	for i := range 200 {
		ids = append(ids, fmt.Sprintf("fs-%04x", i))
	}
	in := ports.Input{Listing: listing(ids...), Range: fullRange, Now: noon}
	in = apply(in, ports.Assign(in))
	for i := range 10000 {
		id := ids[i%len(ids)]
		in.Volumes = append(in.Volumes, volume(fmt.Sprintf("pvc-%d", i), id, in.Table.Targets[id].Port))
	}
	in.Now = noon.Add(time.Minute)
	for b.Loop() {
		if out := ports.Assign(in); out.Changed {
			b.Fatal("the table changed though no input did")
		}
	}
}
