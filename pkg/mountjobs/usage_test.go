package mountjobs_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

var countedAt = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func claimOf(request string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(request)}
	return claim
}

func TestUsageOfAClaimIsReadAsItWasWritten(t *testing.T) {
	want := mountjobs.NewUsageRecord(operations.Usage{Path: "/a", Bytes: 12, Files: 3, Incomplete: "too deep"}, countedAt.Add(time.Millisecond))
	if got, ok := mountjobs.ParseUsage(want.Encode()); !ok || got != want || got.At != countedAt {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, text := range []string{"", "12", `{}`, `{"bytes":1,"files":1}`, `{"bytes":-1,"files":1,"at":"2026-01-02T03:04:05Z"}`, `{"bytes":1e99,"at":"2026-01-02T03:04:05Z"}`} {
		if got, ok := mountjobs.ParseUsage(text); ok {
			t.Errorf("%q was read as %+v", text, got)
		}
	}
}

func TestUsageIsWrittenWhenItHasChanged(t *testing.T) {
	const gi = 1 << 30
	at := func(bytes, files int64, after time.Duration) mountjobs.UsageRecord {
		return mountjobs.UsageRecord{Bytes: bytes, Files: files, At: countedAt.Add(after)}
	}
	over := at(11*gi, 100, 0)
	over.OverRequest = true
	incomplete := at(gi, 100, 0)
	incomplete.Incomplete = "too deep"
	tests := map[string]struct {
		before, counted mountjobs.UsageRecord
		write, over     bool
	}{
		"the first":                {mountjobs.UsageRecord{}, at(gi, 100, 0), true, false},
		"the first, of nothing":    {mountjobs.UsageRecord{}, at(0, 0, 0), true, false},
		"the same":                 {at(gi, 100, 0), at(gi, 100, 0), false, false},
		"the same after an hour":   {at(gi, 100, 0), at(gi, 100, time.Hour), false, false},
		"the same after a day":     {at(gi, 100, 0), at(gi, 100, 24*time.Hour), true, false},
		"counted before a forgery": {at(gi, 100, 9000*time.Hour), at(gi, 100, 0), true, false},
		"a little more":            {at(gi, 1000, 0), at(gi+gi/200, 1009, time.Hour), false, false},
		"more bytes":               {at(gi, 1000, 0), at(gi+gi/50, 1000, time.Hour), true, false},
		"fewer bytes":              {at(gi, 1000, 0), at(gi-gi/50, 1000, time.Hour), true, false},
		"more files":               {at(gi, 100, 0), at(gi, 102, time.Hour), true, false},
		"no longer complete":       {at(gi, 100, 0), incomplete, true, false},
		"as much as requested":     {at(10*gi-1, 100, 0), at(10*gi, 100, 0), false, false},
		"more than requested":      {at(10*gi, 100, 0), at(10*gi+1, 100, 0), true, true},
		"still more":               {over, at(11*gi, 100, 0), false, true},
		"no longer more":           {over, at(10*gi, 100, 0), true, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			claim := claimOf("10Gi")
			next, write := tt.before.Update(claim, tt.counted)
			if write != tt.write || next.OverRequest != tt.over {
				t.Errorf("written: %t, over the request: %t", write, next.OverRequest)
			}
			if again, write := next.Update(claim, tt.counted); write {
				t.Errorf("%+v is written again as %+v", next, again)
			}
		})
	}
}
