package main

import (
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/node/readahead"
)

// TestPlannedReadingsAreNextToTheirBase: the table compares each with the kernel's default before it.
func TestPlannedReadingsAreNextToTheirBase(t *testing.T) {
	all := plannedReadings()
	if len(all) != 3*2*2*4 {
		t.Fatalf("%d readings", len(all))
	}
	var base reading
	seen := map[reading]bool{}
	for i, r := range all {
		if i%len(readAheads()) == 0 {
			base = r
			base.ReadAhead = readahead.KernelDefault
		}
		same := r
		same.ReadAhead = base.ReadAhead
		if same != base || seen[r] {
			t.Errorf("%s is beside %s, or there twice", r, base)
		}
		seen[r] = true
	}
}

func TestReadAheadTable(t *testing.T) {
	var all []reading
	for _, block := range []int{128, 1024} {
		for i, rate := range []float64{10, 25, 120.4, 5} {
			all = append(all, reading{RoundTrip: 5 * time.Millisecond, Readers: 8, Block: block, ReadAhead: readAheads()[i], Rate: rate})
		}
	}
	const want = `| MiB/s at a round trip of | readers | each read | 128 KiB ahead | 1 MiB ahead | 4 MiB ahead | 15 MiB ahead |
|---|--:|---|--:|--:|--:|--:|
| 5 ms | 8 | 128 KiB | 10.0 | 25.0 (2.5×) | 120 (12.0×) | 5.00 (0.5×) |
| 5 ms | 8 | 1 MiB | 10.0 | 25.0 (2.5×) | 120 (12.0×) | 5.00 (0.5×) |
`
	if got := readAheadTable(all); got != want {
		t.Errorf("got\n%s", got)
	}
	if got := readAheadTable(nil); got != "" {
		t.Errorf("got %q without any", got)
	}
}

func TestOutputOfTheReaders(t *testing.T) {
	for output, want := range map[string]float64{"67108864 0.5": 128, "1048576 2": 0.5, "0 1": 0, "5 0": 0, "5": 0, "": 0} {
		var r reading
		if err := r.parse(output); r.Rate != want || (err != nil) != (want == 0) {
			t.Errorf("%q: %g MiB/s, %v; want %g", output, r.Rate, err, want)
		}
	}
}
