package directories

import (
	"iter"
	"math/bits"
)

// gidSet is a set of gids, 64 of them in a word: those that were allocated are mostly in a row, and a file system
// may have had millions.
type gidSet map[int]uint64

const gidsInWord = 64

func (s gidSet) has(gid int) bool { return s[gid/gidsInWord]>>(gid%gidsInWord)&1 == 1 }

func (s gidSet) add(gid int) { s[gid/gidsInWord] |= 1 << (gid % gidsInWord) }

func (s gidSet) remove(gid int) {
	word := gid / gidsInWord
	if s[word] &^= 1 << (gid % gidsInWord); s[word] == 0 {
		delete(s, word)
	}
}

// within are the gids of a word that are in a range.
func (s gidSet) within(word int, wanted gidRange) uint64 {
	first, last, set := word*gidsInWord, word*gidsInWord+gidsInWord-1, s[word]
	if last < wanted.lowest || first > wanted.highest {
		return 0
	}
	if below := wanted.lowest - first; below > 0 {
		set &= ^uint64(0) << below
	}
	if above := last - wanted.highest; above > 0 {
		set &= ^uint64(0) >> above
	}
	return set
}

// highest is the highest gid of a range, or the number before the range.
func (s gidSet) highest(wanted gidRange) int {
	top := wanted.lowest - 1
	for word := range s {
		if set := s.within(word, wanted); set != 0 {
			top = max(top, word*gidsInWord+bits.Len64(set)-1)
		}
	}
	return top
}

// in gives the gids of a range. They may be removed meanwhile.
func (s gidSet) in(wanted gidRange) iter.Seq[int] {
	return func(yield func(int) bool) {
		for word := range s {
			for set := s.within(word, wanted); set != 0; set &= set - 1 {
				if !yield(word*gidsInWord + bits.TrailingZeros64(set)) {
					return
				}
			}
		}
	}
}
