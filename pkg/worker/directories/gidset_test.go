package directories

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestGIDSet compares the set with a map.
func TestGIDSet(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	set, want := gidSet{}, map[int]bool{}
	for range 20_000 {
		gid := random.IntN(1000)
		if random.IntN(2) == 0 {
			set.add(gid)
			want[gid] = true
		} else {
			set.remove(gid)
			delete(want, gid)
		}
		if other := random.IntN(1000); set.has(other) != want[other] {
			t.Fatalf("%d is in the set: %v", other, set.has(other))
		}
		wanted := gidRange{random.IntN(1000), random.IntN(1000)}
		if random.IntN(100) > 0 || wanted.lowest > wanted.highest {
			continue
		}
		top, all := wanted.lowest-1, []int(nil)
		for n := wanted.lowest; n <= wanted.highest; n++ {
			if want[n] {
				top, all = n, append(all, n)
			}
		}
		if got := set.highest(wanted); got != top {
			t.Fatalf("the highest of %v is %d, want %d", wanted, got, top)
		}
		if got := slices.Sorted(set.in(wanted)); !slices.Equal(got, all) {
			t.Fatalf("%v has %v, want %v", wanted, got, all)
		}
	}
}

// TestMemoryOfGIDs: a file system that has had three million claims with a gid of their own can have one more.
func TestMemoryOfGIDs(t *testing.T) {
	set := gidSet{}
	for gid := range 3_000_000 {
		set.add(2000 + gid)
	}
	if words := len(set); words > 3_000_000/gidsInWord+2 {
		t.Errorf("%d words", words)
	}
	if top := set.highest(gidRange{2000, 1<<31 - 1}); top != 3_001_999 {
		t.Errorf("the highest is %d", top)
	}
}
