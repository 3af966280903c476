package main

import (
	"strings"
	"testing"
)

// history builds operations that return before the next is called. Those without a result are open to the end.
func history(all ...Operation) []Operation {
	for i := range all {
		all[i].Call, all[i].Return = int64(2*i), int64(2*i+1)
		if all[i].Result == "" {
			all[i].Return = never
		}
	}
	return append(all, deaths(all)...)
}

func TestCheck(t *testing.T) {
	tests := map[string]struct {
		history []Operation
		want    string // of the violation
	}{
		"reads have the last write": {history(
			Operation{Kind: write, File: "direct-0", Wrote: 1, Result: done},
			Operation{Kind: read, File: "direct-0", Read: 1, Result: done}), ""},
		"a write is lost": {history(
			Operation{Kind: write, File: "direct-0", Wrote: 1, Result: done},
			Operation{Kind: write, File: "direct-0", Wrote: 2, Result: done},
			Operation{Kind: read, File: "direct-0", Read: 1, Result: done}), "no order explains direct-0"},
		"a write without an answer happened": {history(
			Operation{Kind: write, File: "direct-0", Wrote: 1},
			Operation{Kind: read, File: "direct-0", Read: 0, Result: done},
			Operation{Kind: read, File: "direct-0", Read: 1, Result: done}), ""},
		"a write without an answer is undone": {history(
			Operation{Kind: write, File: "direct-0", Wrote: 1},
			Operation{Kind: read, File: "direct-0", Read: 1, Result: done},
			Operation{Kind: read, File: "direct-0", Read: 0, Result: done}), "no order explains direct-0"},
		"a value was never written": {history(
			Operation{Kind: read, File: "direct-0", Read: 7, Result: done}), "no order explains direct-0"},
		"a swap under a lock is lost": {history(
			Operation{Kind: swap, File: "fcntl-0", Read: 0, Wrote: 1, Result: done},
			Operation{Kind: swap, File: "fcntl-0", Read: 0, Wrote: 2, Result: done}), "no order explains fcntl-0"},
		"a removed file keeps its content": {history(
			Operation{Kind: swap, File: "ghost-1", Read: 0, Wrote: 1, Result: done},
			Operation{Kind: swap, File: "ghost-1", Read: 1, Wrote: 2, Result: done}), ""},
		"a removed file loses its content": {history(
			Operation{Kind: swap, File: "ghost-1", Read: 0, Wrote: 1, Result: done},
			Operation{Kind: swap, File: "ghost-1", Read: 0, Wrote: 2, Result: done}), "no order explains ghost-1"},
		"a lock changes hands": {history(
			Operation{Client: 1, Kind: lock, File: "flock-0", Result: done},
			Operation{Client: 2, Kind: lock, File: "flock-0", Result: busy},
			Operation{Client: 1, Kind: unlock, File: "flock-0", Result: done},
			Operation{Client: 2, Kind: lock, File: "flock-0", Result: done},
			Operation{Client: 2, Kind: unlock, File: "flock-0", Result: done}), ""},
		"a lock has two holders": {history(
			Operation{Client: 1, Kind: lock, File: "flock-0", Result: done},
			Operation{Client: 2, Kind: lock, File: "flock-0", Result: done},
			Operation{Client: 1, Kind: unlock, File: "flock-0", Result: done},
			Operation{Client: 2, Kind: unlock, File: "flock-0", Result: done}), "no order explains flock-0 (lock)"},
		"a holder dies": {history(
			Operation{Client: 1, Kind: lock, File: "flock-0", Result: done},
			Operation{Client: 2, Kind: lock, File: "flock-0", Result: done},
			Operation{Client: 2, Kind: unlock, File: "flock-0", Result: done}), ""},
		"a lock without an answer is never had": {history(
			Operation{Client: 1, Kind: lock, File: "flock-0"},
			Operation{Client: 2, Kind: lock, File: "flock-0", Result: done}), ""},
		"a name has a creator and a taker": {history(
			Operation{Client: 1, Kind: create, File: "race/1", Result: done},
			Operation{Client: 2, Kind: create, File: "race/1", Result: exists},
			Operation{Client: 2, Kind: take, File: "race/1", Result: done},
			Operation{Client: 1, Kind: take, File: "race/1", Result: missing}), ""},
		"a name has two creators": {history(
			Operation{Client: 1, Kind: create, File: "race/1", Result: done},
			Operation{Client: 2, Kind: create, File: "race/1", Result: done}), "no order explains race/1"},
		"a name exists that nobody created": {history(
			Operation{Client: 1, Kind: create, File: "race/1", Result: exists}), "no order explains race/1"},
		"a name is taken twice": {history(
			Operation{Client: 1, Kind: create, File: "race/1", Result: done},
			Operation{Client: 1, Kind: take, File: "race/1", Result: done},
			Operation{Client: 2, Kind: take, File: "race/1", Result: done}), "no order explains race/1"},
		"a closed file is read elsewhere": {history(
			Operation{Kind: read, File: "closed-0", Read: 0, Result: done},
			Operation{Kind: write, File: "closed-0", Wrote: 1, Result: done},
			Operation{Kind: read, File: "closed-0", Read: 1, Result: done}), ""},
		"a closed file is stale": {history(
			Operation{Kind: write, File: "closed-0", Wrote: 1, Result: done},
			Operation{Kind: write, File: "closed-0", Wrote: 2, Result: done},
			Operation{Kind: read, File: "closed-0", Read: 1, Result: done}), "stale read"},
		"an operation fails": {history(
			Operation{Kind: read, File: "direct-0", Failure: "input/output error"}), "failed: "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			found := check(tt.history).violations
			if len(found) != 0 && tt.want == "" || tt.want != "" && (len(found) != 1 || !strings.HasPrefix(found[0], tt.want)) {
				t.Errorf("got %q, want %q", found, tt.want)
			}
		})
	}
}

// TestCloseToOpenOverlaps: two nodes may see a write that is not closed in any order, and not one that is.
func TestCloseToOpenOverlaps(t *testing.T) {
	all := []Operation{
		{Kind: write, File: "closed-0", Wrote: 1, Result: done, Call: 1, Return: 6},
		{Kind: read, File: "closed-0", Read: 1, Result: done, Call: 2, Return: 3},
		{Kind: read, File: "closed-0", Read: 0, Result: done, Call: 4, Return: 5},
		{Kind: read, File: "closed-0", Read: 0, Result: done, Call: 7, Return: 8},
	}
	found := check(all).violations
	if len(found) != 1 || !strings.Contains(found[0], "[7, 8]") {
		t.Errorf("got %q, want one stale read at [7, 8]", found)
	}
}
