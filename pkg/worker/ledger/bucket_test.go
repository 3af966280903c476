package ledger

import (
	"testing"
	"time"
)

func TestBucketFor(t *testing.T) {
	due := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for _, tt := range []struct {
		keep    time.Duration
		forever bool
		want    string
	}{
		{0, false, ""},
		{0, true, "NEVER"},
		{2 * time.Second, false, "20260102T030406Z"},
		{100 * time.Minute, false, "20260102T030500Z"},
		{72 * time.Hour, false, "20260102T033600Z"},
		{100000 * time.Hour, false, "20260103T000000Z"},
	} {
		bucket := BucketFor(due, tt.keep, tt.forever)
		at, ok := BucketTime(bucket)
		if bucket != tt.want || ok == tt.forever || ok && !at.IsZero() && at.Before(due) {
			t.Errorf("kept for %s: got %s, want %s", tt.keep, bucket, tt.want)
		}
	}
	for _, name := range []string{"NEVER", "never", "20260102", "pvc-1"} {
		if _, ok := BucketTime(name); ok {
			t.Errorf("%q is taken for a time", name)
		}
	}
}
