package accesspoints

import (
	"fmt"
	"testing"
)

// TestReservedGIDsAreCountedOnce: what a range has given is not tried again, so that many claims take as many steps.
func TestReservedGIDsAreCountedOnce(t *testing.T) {
	g := listing{used: map[int]bool{101: true}, reserved: map[string]int{}, next: map[int]int{}}
	for n, want := range []int{100, 102, 103} {
		if gid := g.reserve(fmt.Sprint("pvc-", n), 100, 103); gid != want {
			t.Errorf("claim %d has gid %d, want %d", n, gid, want)
		}
	}
	if again := g.reserve("pvc-1", 100, 103); again != 102 {
		t.Errorf("the second time it has gid %d", again)
	}
	if gid := g.reserve("pvc-3", 100, 103); gid != 0 {
		t.Errorf("a full range gave %d", gid)
	}
	if gid := g.reserve("pvc-3", 100, 104); gid != 104 {
		t.Errorf("a wider range gave %d", gid)
	}
	if gid := g.reserve("pvc-4", 50, 60); gid != 50 {
		t.Errorf("another range gave %d", gid)
	}
	delete(g.used, 100)
	if gid := g.reserve("pvc-5", 100, 105); gid != 105 {
		t.Errorf("the range is tried from its begin again, and gave %d", gid)
	}
}
