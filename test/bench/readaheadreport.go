package main

import (
	"fmt"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/node/readahead"
)

// reading is how fast large files were read, each from its beginning by a reader of its own.
type reading struct {
	RoundTrip time.Duration `json:"roundTrip"` // that the mount target adds
	Readers   int           `json:"readers"`
	Block     int           `json:"block"`     // KiB of each read(2)
	ReadAhead int           `json:"readAhead"` // KiB
	Rate      float64       `json:"rate"`      // MiB a second of all readers together
}

const mostReaders = 8

// plannedReadings has those that are compared next to each other, so that what else the machine does meets them
// alike. With reads of 128 KiB, as of cp and cat, the kernel reads ahead by the setting alone; a larger read
// requests up to rsize at once whatever the setting is.
func plannedReadings() (all []reading) {
	for _, roundTrip := range []time.Duration{time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond} {
		for _, readers := range []int{1, mostReaders} {
			for _, block := range []int{128, 1024} {
				for _, ahead := range readAheads() {
					all = append(all, reading{RoundTrip: roundTrip, Readers: readers, Block: block, ReadAhead: ahead})
				}
			}
		}
	}
	return all
}

// readAheads are in KiB. The first one is what the others are compared with.
func readAheads() []int { return []int{readahead.KernelDefault, 1024, 4096, 15360} }

func (r reading) String() string {
	return fmt.Sprintf("%d ms, %d readers, reads of %s, %s ahead", r.RoundTrip.Milliseconds(), r.Readers, binarySize(r.Block), binarySize(r.ReadAhead))
}

// parse reads what readahead.pl printed.
func (r *reading) parse(output string) error {
	var bytes, seconds float64
	if _, err := fmt.Sscan(output, &bytes, &seconds); err != nil {
		return fmt.Errorf("%q: want bytes and seconds: %w", output, err)
	}
	if bytes <= 0 || seconds <= 0 {
		return fmt.Errorf("%q: nothing was read", output)
	}
	r.Rate = bytes / (1 << 20) / seconds
	return nil
}

func binarySize(kib int) string {
	if kib%1024 == 0 {
		return fmt.Sprintf("%d MiB", kib/1024)
	}
	return fmt.Sprintf("%d KiB", kib)
}

// readAheadTable has a column for each read-ahead, with how many times faster it is than the first one.
func readAheadTable(all []reading) string {
	if len(all) == 0 {
		return ""
	}
	var text strings.Builder
	text.WriteString("| MiB/s at a round trip of | readers | each read |")
	for _, ahead := range readAheads() {
		fmt.Fprintf(&text, " %s ahead |", binarySize(ahead))
	}
	text.WriteString("\n|---|--:|---|" + strings.Repeat("--:|", len(readAheads())))
	var base float64
	for _, r := range all {
		if r.ReadAhead == readahead.KernelDefault {
			base = r.Rate
			fmt.Fprintf(&text, "\n| %d ms | %d | %s | %s |", r.RoundTrip.Milliseconds(), r.Readers, binarySize(r.Block), number(r.Rate))
			continue
		}
		fmt.Fprintf(&text, " %s (%.1f×) |", number(r.Rate), r.Rate/base)
	}
	text.WriteString("\n")
	return text.String()
}
