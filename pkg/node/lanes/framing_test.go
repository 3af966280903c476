package lanes_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"gnuthought.com/efs-stunnel/pkg/node/lanes"
)

const last = 1 << 31

// record returns a record of fragments.
func record(fragments ...[]byte) []byte {
	var b []byte
	for i, fragment := range fragments {
		mark := uint32(len(fragment))
		if i == len(fragments)-1 {
			mark |= last
		}
		b = append(binary.BigEndian.AppendUint32(b, mark), fragment...)
	}
	return b
}

func words(values ...uint32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return b
}

// TestFramerFindsRecordsHoweverTheyArrive: the ends do not depend on how the stream is cut.
func TestFramerFindsRecordsHoweverTheyArrive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sent := rapid.SliceOfN(rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 40), 1, 4), 1, 6).Draw(t, "records")
		var stream []byte
		var want []int
		for _, fragments := range sent {
			stream = append(stream, record(fragments...)...)
			want = append(want, len(stream))
		}
		var f lanes.Framer
		var got []int
		for at := 0; at < len(stream); {
			piece := stream[at:min(len(stream), at+rapid.IntRange(1, 30).Draw(t, "piece"))]
			n, end, err := f.Next(piece)
			if err != nil || n == 0 || !end && n < len(piece) {
				t.Fatalf("took %d of %d bytes, end %v, %v", n, len(piece), end, err)
			}
			if at += n; end {
				got = append(got, at)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("records end at %v, want %v", got, want)
		}
	})
}

func TestTooLongRecordsAreRefused(t *testing.T) {
	longest := record(make([]byte, lanes.MaxRecord-4))
	var endless []byte
	for range lanes.MaxRecord/4 + 1 {
		endless = append(endless, 0, 0, 0, 0) // fragments without a byte, and none the last
	}
	for name, tt := range map[string]struct {
		stream []byte
		fails  bool
	}{
		"longest":               {longest, false},
		"one byte longer":       {words(last | (lanes.MaxRecord - 3)), true},
		"longest mark":          {words(0xffffffff), true},
		"two fragments":         {slices.Concat(words(lanes.MaxRecord-4), make([]byte, lanes.MaxRecord-4), words(last)), true},
		"fragments without end": {endless, true},
	} {
		var f lanes.Framer
		var err error
		for rest := tt.stream; len(rest) > 0 && err == nil; {
			var n int
			n, _, err = f.Next(rest[:min(len(rest), 1000)])
			rest = rest[n:]
		}
		if (err != nil) != tt.fails {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// compound is call 7 of NFS 4 with a minor version.
func compound(minor uint32) []byte {
	credential := append(words(1, 8), make([]byte, 8)...)
	tag := append(words(3), 'a', 'b', 'c', 0)
	return record(slices.Concat(words(7, 0, 2, 100003, 4, 1), credential, words(0, 0), tag, words(minor, 0)))
}

func TestParseHeader(t *testing.T) {
	for name, tt := range map[string]struct {
		record []byte
		want   lanes.Header
		ok     bool
		fails  bool
	}{
		"4.1":                {record: compound(1), want: lanes.Header{XID: 7, Sessions: true}, ok: true},
		"4.2":                {record: compound(2), want: lanes.Header{XID: 7, Sessions: true}, ok: true},
		"4.0":                {record: compound(0), want: lanes.Header{XID: 7}, ok: true},
		"null":               {record: record(words(8, 0, 2, 100003, 4, 0, 0, 0, 0, 0)), want: lanes.Header{XID: 8, Null: true}, ok: true},
		"reply":              {record: record(words(9, 1, 0, 0, 0, 0)), want: lanes.Header{XID: 9, Reply: true}, ok: true},
		"short reply":        {record: record(words(9, 1)), want: lanes.Header{XID: 9, Reply: true}, ok: true},
		"call without body":  {record: record(words(9, 0)), want: lanes.Header{XID: 9}, ok: true},
		"first bytes only":   {record: compound(1)[:lanes.HeaderBytes], want: lanes.Header{XID: 7}, ok: true},
		"too few bytes":      {record: compound(1)[:lanes.HeaderBytes-1]},
		"half a mark":        {record: []byte{0, 0}},
		"nothing":            {},
		"no room for an xid": {record: record([]byte("1234567")), fails: true},
		"huge credential":    {record: record(words(7, 0, 2, 100003, 4, 1, 1, 0xfffffffe)), want: lanes.Header{XID: 7}, ok: true},
	} {
		got, ok, err := lanes.ParseHeader(tt.record)
		if got != tt.want || ok != tt.ok || (err != nil) != tt.fails {
			t.Errorf("%s: got %+v, %v, %v", name, got, ok, err)
		}
	}
}

// TestHostileBytesAreRead: no bytes whatever make the readers panic.
func TestHostileBytesAreRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "bytes")
		if rapid.Bool().Draw(t, "plausible") {
			copy(b, words(last|uint32(len(b)), 5, uint32(rapid.IntRange(0, 1).Draw(t, "kind"))))
		}
		_, _, _ = lanes.ParseHeader(b)
		_, _ = lanes.ParseAnswer(b, 5)
		_, _, _ = new(lanes.Framer).Next(b)
	})
}
