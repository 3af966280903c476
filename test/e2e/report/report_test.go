package report

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReportExplainsFailuresOnly(t *testing.T) {
	r := Report{
		Began: time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC), Took: 90 * time.Second,
		Facts: []Fact{{"Kubernetes", "v1.36.3"}, {"node", "one | two\nlines"}},
		Class: "keep_deleted: 1h\n",
		Scenarios: []Scenario{
			{Name: "good", Result: Passed, Took: 1400 * time.Millisecond, Notes: []string{"pause 1 s", "and more"}, Failures: []string{"not shown"}},
			{Name: "bad", Result: Failed, Took: time.Minute, Failures: []string{"first", "second"}, Evidence: []Output{{"kubectl get pods", "```\n"}}},
			{Name: "none", Result: Skipped, Notes: []string{"one node"}},
		},
	}
	const want = `# efs-stunnel acceptance: 1 passed, 1 failed, 1 skipped

| | |
|---|---|
| began | 2026-11-25T12:00:00Z |
| took | 1m30s |
| Kubernetes | v1.36.3 |
| node | one \| two lines |

` + "```yaml\nkeep_deleted: 1h\n```" + `

## Scenarios

| scenario | result | duration | |
|---|---|---|---|
| good | passed | 1s | pause 1 s; and more |
| bad | failed | 1m0s |  |
| none | skipped | 0s | one node |

## Failed: bad

` + "```\nfirst\nsecond\n```" + `

` + "`kubectl get pods`" + `

` + "````\n```\n````\n"
	if diff := cmp.Diff(want, r.Markdown()); diff != "" {
		t.Errorf("report mismatch (-want +got):\n%s", diff)
	}
}
