package volumes_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/volumes"
)

func chosen(t testing.TB, path string, candidates []volumes.Candidate) string {
	t.Helper()
	choice, err := volumes.Choose(volumes.Claim{Path: path}, volumes.Class{}, "", candidates, nil)
	if err != nil || choice.FileSystemID == "" {
		t.Fatalf("no choice for %s: %+v, %v", path, choice, err)
	}
	return choice.FileSystemID
}

func fileSystems(n int) []volumes.Candidate {
	var candidates []volumes.Candidate
	for i := range n {
		candidates = append(candidates, candidate(fmt.Sprintf("fs-%08x", i*7919)))
	}
	return candidates
}

// Retained data is found by this choice, so no version may choose otherwise.
func TestChoiceNeverChanges(t *testing.T) {
	for path, want := range map[string]string{
		"/team/a": "fs-00003dde",
		"/team/b": "fs-00001eef",
		"/team/c": "fs-00000000",
	} {
		if got := chosen(t, path, fileSystems(3)); got != want {
			t.Errorf("%s is on %s, not %s", path, got, want)
		}
	}
}

func TestChoiceDoesNotDependOnOrder(t *testing.T) {
	candidates := fileSystems(7)
	for i := range 200 {
		path := fmt.Sprintf("/ns/%d", i)
		want := chosen(t, path, candidates)
		shuffled := slices.Clone(candidates)
		rand.Shuffle(len(shuffled), func(a, b int) { shuffled[a], shuffled[b] = shuffled[b], shuffled[a] })
		if got := chosen(t, path, shuffled); got != want {
			t.Errorf("%s is on %s, and on %s in another order", path, want, got)
		}
	}
}

// A new file system takes paths for itself only, and about its share of them; taking it away
// again moves only these.
func TestANewFileSystemMovesOnlyWhatItGets(t *testing.T) {
	const paths = 4000
	for n := 1; n <= 6; n++ {
		all := fileSystems(n + 1)
		newest, moved := all[n].ID, 0
		for i := range paths {
			path := fmt.Sprintf("/ns/%d", i)
			before, after := chosen(t, path, all[:n]), chosen(t, path, all)
			if after != before && after != newest {
				t.Fatalf("%s moved from %s to %s when %s came", path, before, after, newest)
			}
			if after == newest {
				moved++
			}
		}
		share := paths / (n + 1)
		if moved < share*3/4 || moved > share*5/4 {
			t.Errorf("of %d paths, file system %d of %d took %d, far from %d", paths, n+1, n+1, moved, share)
		}
	}
}
