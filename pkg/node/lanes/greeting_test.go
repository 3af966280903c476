package lanes_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/node/lanes"
)

// TestGreetingHasTheBytesOfTheProtocol holds what Amazon's client sends: awsfile_prot.x of efs-utils.
func TestGreetingHasTheBytesOfTheProtocol(t *testing.T) {
	client := lanes.Client{ID: [16]byte([]byte("sixteen bytes id")), Incarnation: 3}
	want := record(slices.Concat(words(42, 0, 2, 400123, 1, 2, 0, 0, 0, 0, 16), client.ID[:], words(8, 0, 3)))
	if diff := cmp.Diff(want, lanes.Greeting(42, client)); diff != "" {
		t.Errorf("mismatch (-want +got):\n%s", diff)
	}
}

func TestParseAnswer(t *testing.T) {
	var partition lanes.Partition
	copy(partition[:], "partition seven")
	accepted, numbers := words(5, 1, 0, 0, 0, 0), words(5, 300<<20, 1, 2)
	ready := lanes.Answer{Partition: &partition, Lanes: 5, BytesPerSecond: 300 << 20}
	for name, tt := range map[string]struct {
		record []byte
		want   lanes.Answer
		fails  bool
	}{
		"ready":               {record: record(slices.Concat(accepted, words(3), partition[:], numbers)), want: ready},
		"preferred":           {record: record(slices.Concat(accepted, words(2), partition[:], numbers)), want: lanes.Answer{Retry: true}},
		"ready with verifier": {record: record(slices.Concat(words(5, 1, 0, 1, 4, 0, 0), words(3), partition[:], numbers)), want: ready},
		"retry":               {record: record(slices.Concat(accepted, words(0, 4), []byte("busy"), numbers)), want: lanes.Answer{Retry: true}},
		"retry later":         {record: record(slices.Concat(accepted, words(1, 0), numbers))},
		"error":               {record: record(slices.Concat(accepted, words(4, 0), numbers))},
		"new kind of answer":  {record: record(slices.Concat(accepted, words(9), numbers))},
		"program unknown":     {record: record(words(5, 1, 0, 0, 0, 1))},
		"nothing of null":     {record: record(words(5, 1, 0, 0, 0, 0))},
		"program mismatch":    {record: record(words(5, 1, 0, 0, 0, 2, 2, 3))},
		"denied":              {record: record(words(5, 1, 1, 1, 1))},
		"numbers are missing": {record: record(slices.Concat(accepted, words(3), partition[:])), fails: true},
		"partition is cut":    {record: record(slices.Concat(accepted, words(3), partition[:60])), fails: true},
		"of another call":     {record: record(words(6, 1, 0, 0, 0, 0)), fails: true},
		"a call":              {record: record(words(5, 0, 0, 0, 0, 0)), fails: true},
		"nothing":             {fails: true},
	} {
		got, err := lanes.ParseAnswer(tt.record, 5)
		if diff := cmp.Diff(tt.want, got); diff != "" || (err != nil) != tt.fails {
			if !tt.fails || err == nil {
				t.Errorf("%s: %v, mismatch (-want +got):\n%s", name, err, diff)
			}
		}
	}
}
