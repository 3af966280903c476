package main

import (
	"fmt"
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
		"a lock is stuck": {history(
			Operation{Client: 1, Kind: lock, File: "flock-0", Result: done},
			Operation{Client: 1, Kind: unlock, File: "flock-0", Result: done},
			Operation{Client: 2, Kind: lock, File: "flock-0", Result: busy}), "no order explains flock-0 (lock)"},
		"the lock of a holder that died is not free yet": {history(
			Operation{Client: 1, Kind: lock, File: "flock-0", Result: done},
			Operation{Client: 2, Kind: lock, File: "flock-0", Result: busy}), ""},
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
		"a created name is lost": {history(
			Operation{Client: 1, Kind: create, File: "race/1", Result: done},
			Operation{Client: 1, Kind: take, File: "race/1", Result: missing}), "no order explains race/1"},
		"another node does not know the name yet": {history(
			Operation{Client: 1, Kind: create, File: "race/1", Result: done},
			Operation{Client: 2, Kind: take, File: "race/1", Result: missing}), ""},
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

// TestResultsThatNoOperationHas: a file that vanishes is no result, and neither is an operation that hangs.
func TestResultsThatNoOperationHas(t *testing.T) {
	const call, end = `{"t":1,"c":1,"p":"call","o":1,"k":%q,"f":%q}`, `{"t":2,"c":1,"p":"gone"}`
	tests := map[string]struct {
		kind   Kind
		result string // "" for none
		want   string // of the failure
	}{
		"a file is read":                {read, done, ""},
		"a file to be read vanished":    {read, missing, "it returned missing"},
		"a file to be written vanished": {write, missing, "it returned missing"},
		"a folder vanished":             {create, missing, "it returned missing"},
		"an unlock finds a holder":      {unlock, busy, "it returned busy"},
		"the name to take is missing":   {take, missing, ""},
		"the name to create exists":     {create, exists, ""},
		"nothing":                       {read, "", "it did not return"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			lines := fmt.Sprintf(call, tt.kind, "direct-0")
			if tt.result != "" {
				lines += fmt.Sprintf("\n"+`{"t":2,"c":1,"p":"return","o":1,"r":%q}`, tt.result)
			}
			if got := parsed(t, lines)[0].Failure; got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if got := parsed(t, fmt.Sprintf(call, read, "direct-0")+"\n"+end)[0].Failure; got != "" {
		t.Errorf("an operation of a client that died failed: %s", got)
	}
}

func parsed(t *testing.T, lines string) []Operation {
	t.Helper()
	all, err := parse(strings.NewReader(lines))
	if err != nil {
		t.Fatal(err)
	}
	return all
}
