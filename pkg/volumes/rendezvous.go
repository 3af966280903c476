package volumes

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// rendezvous chooses by highest random weight: every pair of path and file system has a score
// that depends on nothing else. So equal sets choose equally in any order and any process, a
// new file system takes only the paths that it wins, and one that goes gives up only its own.
func rendezvous(path string, candidates []Candidate) Candidate {
	return slices.MaxFunc(candidates, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(score(path, a.ID), score(path, b.ID)), cmp.Compare(a.ID, b.ID))
	})
}

// score must never change: retained data is found again by it.
func score(path, id string) uint64 {
	sum := sha256.Sum256([]byte(id + "\x00" + path))
	return binary.BigEndian.Uint64(sum[:8])
}
