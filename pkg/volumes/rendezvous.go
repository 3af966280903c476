package volumes

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// rendezvous chooses by highest random weight: the score of a path and a file system depends on nothing
// else. So the choice depends neither on the order of the candidates nor on the process, a new file
// system gets only the paths for which it has the highest score, and the paths of the others stay
// where they are when one is removed.
func rendezvous(path string, candidates []Candidate) Candidate {
	return slices.MaxFunc(candidates, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(score(path, a.ID), score(path, b.ID)), cmp.Compare(a.ID, b.ID))
	})
}

// score must never change: it leads to retained data.
func score(path, id string) uint64 {
	sum := sha256.Sum256([]byte(id + "\x00" + path))
	return binary.BigEndian.Uint64(sum[:8])
}
