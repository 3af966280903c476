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

// readyNode is what the apiserver says of a node that posted its status then.
func readyNode(heartbeat time.Time) *corev1.Node {
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.NewTime(heartbeat)}
	return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{ready}}}
}

func TestSight(t *testing.T) {
	o, n := testNode(t)
	w := nodeWatch{Orchestrator: o, nodes: []state.Node{n}}
	r, err := o.Lab.Parts().Start(proc.Spec{Name: n.Part(), Args: []string{"/bin/sleep", "300"}, LogFile: o.Lab.LogFile(n.Name)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Lab.Parts().Stop(context.WithoutCancel(t.Context()), n.Part(), 0) })
	writeLog(t, o, n, machine.Console, "booting\n", begin)
	fresh := clusterView{
		nodes:      map[string]*corev1.Node{n.Name: readyNode(r.StartedAt.Add(time.Minute))},
		heartbeats: map[string]time.Time{n.Name: begin},
	}
	stale := clusterView{nodes: map[string]*corev1.Node{n.Name: readyNode(r.StartedAt.Add(-time.Minute))}}
	tests := []struct {
		name  string
		view  clusterView
		blind error
		why   string // "" = Ready
	}{
		{"a Ready node", fresh, nil, ""},
		{"a node that was Ready before its machine started", stale, nil, "no sign of life since"},
		{"a node that nobody knows", clusterView{}, nil, "has not registered"},
		{"an apiserver that does not answer", clusterView{}, errors.New("connection refused"), "connection refused"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, why := w.sight(n, tt.view, tt.blind)
			if tt.why == "" && why != "" || !strings.Contains(why, tt.why) {
				t.Errorf("not Ready because %q, want %q", why, tt.why)
			}
			if s.ready != (tt.why == "") || s.ended || s.blind != (tt.blind != nil) || s.sign.logged != int64(len("booting\n")) {
				t.Errorf("sighting %+v", s)
			}
		})
	}
	if err := o.Lab.Parts().Stop(t.Context(), n.Part(), 0); err != nil {
		t.Fatal(err)
	}
	if s, why := w.sight(n, fresh, nil); !s.ended || s.ready || why != "its machine has ended" {
		t.Errorf("a machine that ended: %+v, %q", s, why)
	}
}

func TestGivingUpTellsAboutEveryMissingNode(t *testing.T) {
	o, n := testNode(t)
	other := state.Node{Name: "node-8", Index: 8, Zone: "us-east-1a"}
	writeLog(t, o, n, machine.Console, "lab: loading drivers\n", begin)
	w := nodeWatch{Orchestrator: o, nodes: []state.Node{n, other}, begin: begin, vigils: map[string]vigil{other.Name: {isReady: true}}}
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
		t.Errorf("%v: tells about a Ready node", err)
	}
}
