package orchestrate

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/hack/lab/internal/machine"
	"gnuthought.com/efs-stunnel/hack/lab/internal/proc"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == proc.ExecCommand {
		if err := proc.Exec(os.Args[2:]); err != nil {
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// readyNode returns a Node whose kubelet reported at heartbeat that it is Ready.
func readyNode(heartbeat time.Time) *corev1.Node {
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.NewTime(heartbeat)}
	return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{ready}}}
}

func TestObserve(t *testing.T) {
	orchestrator, n := testNode(t)
	w := nodeWatch{Orchestrator: orchestrator, nodes: []state.Node{n}}
	r, err := orchestrator.Lab.Parts().Start(proc.Spec{Name: n.Part(), Args: []string{"/bin/sleep", "300"}, LogFile: orchestrator.Lab.LogFile(n.Name)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = orchestrator.Lab.Parts().Stop(context.WithoutCancel(t.Context()), n.Part(), 0) })
	writeLog(t, orchestrator, n, machine.Console, "booting\n", begin)
	fresh := nodeReports{
		nodes:      map[string]*corev1.Node{n.Name: readyNode(r.StartedAt.Add(time.Minute))},
		heartbeats: map[string]time.Time{n.Name: begin},
	}
	stale := nodeReports{nodes: map[string]*corev1.Node{n.Name: readyNode(r.StartedAt.Add(-time.Minute))}}
	tests := []struct {
		name    string
		reports nodeReports
		apiErr  error
		reason  string // "" = Ready
	}{
		{"a Ready node", fresh, nil, ""},
		{"a node that was Ready before its machine started", stale, nil, "no heartbeat since"},
		{"a node that has not registered", nodeReports{}, nil, "has not registered"},
		{"an apiserver that does not answer", nodeReports{}, errors.New("connection refused"), "connection refused"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o, reason := w.observe(n, tt.reports, tt.apiErr)
			if tt.reason == "" && reason != "" || !strings.Contains(reason, tt.reason) {
				t.Errorf("not Ready because %q, want %q", reason, tt.reason)
			}
			if o.ready != (tt.reason == "") || o.ended || o.apiDown != (tt.apiErr != nil) || o.progress.logged != int64(len("booting\n")) {
				t.Errorf("observation %+v", o)
			}
		})
	}
	if err := orchestrator.Lab.Parts().Stop(t.Context(), n.Part(), 0); err != nil {
		t.Fatal(err)
	}
	if o, reason := w.observe(n, fresh, nil); !o.ended || o.ready || reason != "its machine has ended" {
		t.Errorf("a machine that ended: %+v, %q", o, reason)
	}
}

func TestErrorAfterGivingUpDescribesEveryNodeThatIsNotReady(t *testing.T) {
	o, n := testNode(t)
	other := state.Node{Name: "node-8", Index: 8, Zone: "us-east-1a"}
	writeLog(t, o, n, machine.Console, "lab: loading drivers\n", begin)
	w := nodeWatch{Orchestrator: o, nodes: []state.Node{n, other}, begin: begin, states: map[string]nodeState{other.Name: {isReady: true}}}
	missing := errors.New("node-7: has not registered")
	if err := w.orGiveUp(missing, nil); !errors.Is(err, missing) {
		t.Errorf("without a lost node: %v", err)
	}
	err := w.orGiveUp(missing, []string{n.Name})
	if _, ok := errors.AsType[*backoff.PermanentError](err); !ok {
		t.Errorf("%v is not permanent", err)
	}
	for _, want := range []string{"gave up on node-7 after ", "node-7: has not registered\nnode-7: its machine is stopped", "lab: loading drivers"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: lacks %q", err, want)
		}
	}
	if strings.Contains(err.Error(), other.Name) {
		t.Errorf("%v: describes a Ready node", err)
	}
}
