package inspect

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestOneEntryForOneCause(t *testing.T) {
	claim := func(cause Cause, name, message string) Result {
		r := problem(cause, named(KindClaim, "team", name), message)
		r.class, r.fileSystem = "bad", "fs-1"
		return r
	}
	f := &facts{Snapshot: &Snapshot{Now: time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)}}
	lasting := func(name string, age time.Duration) Result {
		return f.lasting(claim("SetupFailed", name, "quota"), f.Now.Add(-age))
	}
	tunnel := func(node, from string) Result {
		r := problem("TunnelUnhealthy", named(KindNode, node), node+" has no answer")
		r.from = from
		return r
	}
	onNode := func(node string) Result {
		r := claim(PodsWaitForMount, node, "pod on "+node)
		r.node = node
		return r
	}
	tests := map[string]struct {
		checks []Examined
		want   map[string][]string
	}{
		"a class": {
			[]Examined{{"claims", []Result{claim(ClassRefused, "a", "m"), claim(ClassRefused, "b", "n")}}, {"classes", []Result{problem(ClassRefused, "storage class bad", "m"), problem(ClassRefused, "storage class other", "o")}}},
			map[string][]string{"storage class bad": {"claim team/a", "claim team/b"}, "storage class other": nil},
		},
		"a mount target": {
			[]Examined{{"tunnels", []Result{tunnel("n1", "10.0.0.4"), tunnel("n2", "10.0.0.4"), tunnel("n3", "10.0.1.4")}}},
			map[string][]string{"node n1": {"node n2"}, "node n3": nil},
		},
		"a tunnel of the pod's node": {
			[]Examined{{"claims", []Result{onNode("n2"), onNode("n9")}}, {"tunnels", []Result{tunnel("n1", "10.0.0.4"), tunnel("n2", "10.0.0.4")}}},
			map[string][]string{"node n1": {"claim team/n2", "node n2"}, "claim team/n9": nil},
		},
		"one message with different ages": {
			[]Examined{{"claims", []Result{lasting("a", 5*time.Minute), lasting("b", time.Hour), claim("SetupFailed", "c", "else")}}},
			map[string][]string{"claim team/a": {"claim team/b"}, "claim team/c": nil},
		},
		"another file system's": {
			[]Examined{{"claims", []Result{claim("WaitsForFileSystem", "a", "m")}}, {"file systems", []Result{problem("FileSystemUnusable", "file system fs-2", "o")}}},
			map[string][]string{"claim team/a": nil, "file system fs-2": nil},
		},
	}
	for name, tt := range tests {
		for i := range tt.checks {
			for j := range tt.checks[i].Results {
				tt.checks[i].Results[j].check = tt.checks[i].Check
			}
		}
		linkProblems(tt.checks)
		got := map[string][]string{}
		for _, e := range Entries(of(tt.checks, Problem)) {
			got[e.Object] = e.Follows
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: entries mismatch (-want +got):\n%s", name, diff)
		}
	}
}

func TestCauseIsThatOfTheFirstProblemsOwnClass(t *testing.T) {
	refused := problem(ClassRefused, named(KindClaim, "team", "a"), "m")
	refused.class = "bad"
	other, bad := problem(ClassRefused, "storage class another", "n"), problem(ClassRefused, "storage class bad", "m")
	other.check, bad.check = "classes", "classes"
	checks := []Examined{{"claims", []Result{refused}}, {"classes", []Result{other, bad}}}
	linkProblems(checks)
	if got := NewDiagnosis("the installation", checks).findCause().Object; got != bad.Object {
		t.Errorf("the cause is %q, want %q", got, bad.Object)
	}
}
