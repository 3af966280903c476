package orchestrate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"gnuthought.com/efs-stunnel/hack/lab/internal/machine"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
	"gnuthought.com/efs-stunnel/hack/lab/internal/step"
)

// nodeWatch waits for nodes to become Ready, and power-cycles the machines of those that hang.
type nodeWatch struct {
	*Orchestrator
	client    kubernetes.Interface
	settings  state.Settings
	nodes     []state.Node
	artifacts artifactSet
	begin     time.Time
	states    map[string]nodeState // by node name
}

// awaitNodes waits until every node has been Ready since its machine started: the apiserver still
// reports a machine that was stopped as Ready. Its error describes the nodes that are not Ready.
func (o *Orchestrator) awaitNodes(ctx context.Context, notes *step.Notes, s state.Settings, nodes []state.Node, a artifactSet) error {
	c, err := client(o.Lab)
	if err != nil {
		return err
	}
	w := nodeWatch{
		Orchestrator: o, client: c, settings: s, nodes: nodes, artifacts: a,
		begin: time.Now(), states: make(map[string]nodeState),
	}
	for _, n := range nodes {
		w.states[n.Name] = newNodeState(w.begin)
	}
	// The watch gives up before, with a more detailed error.
	const limit = nodeLimit + maxPowerCycles*restartLimit + time.Minute
	err = await(ctx, notes, limit, "nodes", w.poll)
	cycles := 0
	for _, s := range w.states {
		cycles += s.powerCycles
	}
	if cycles > 0 {
		notes.Result("power cycles: %d", cycles)
	}
	return err
}

// poll observes every node and acts on its state. It returns which nodes are not Ready, as a permanent
// error once it gives up on one.
func (w *nodeWatch) poll(ctx context.Context) error {
	reports, apiErr := w.readReports(ctx)
	var missing, lost []string
	for _, n := range w.nodes {
		o, reason := w.observe(n, reports, apiErr)
		if reason != "" {
			missing = append(missing, n.Name+": "+reason)
		}
		s := w.states[n.Name].observed(o)
		w.states[n.Name] = s
		switch s.next(o) {
		case powerCycle:
			if err := w.powerCycle(ctx, n, s); err != nil {
				return backoff.Permanent(err)
			}
		case giveUp:
			lost = append(lost, n.Name)
		case keepWaiting:
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return w.orGiveUp(errors.New(strings.Join(missing, "; ")), lost)
}

// nodeReports has the apiserver's objects and heartbeats of the nodes, by their names.
type nodeReports struct {
	nodes      map[string]*corev1.Node
	heartbeats map[string]time.Time
}

// readReports reads the nodes and their Leases. A kubelet renews its Lease every ten seconds, and may
// not update its Node for five minutes.
func (w *nodeWatch) readReports(ctx context.Context) (nodeReports, error) {
	nodes, err := w.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nodeReports{}, fmt.Errorf("listing nodes: %w", err)
	}
	leases, err := w.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nodeReports{}, fmt.Errorf("listing the nodes' leases: %w", err)
	}
	reports := nodeReports{nodes: make(map[string]*corev1.Node), heartbeats: make(map[string]time.Time)}
	for i := range nodes.Items {
		reports.nodes[nodes.Items[i].Name] = &nodes.Items[i]
	}
	for i := range leases.Items {
		if renewed := leases.Items[i].Spec.RenewTime; renewed != nil {
			reports.heartbeats[leases.Items[i].Name] = renewed.Time
		}
	}
	return reports, nil
}

// observe observes one node, and returns the reason why it is not Ready. apiErr is set if the apiserver
// did not answer.
func (w *nodeWatch) observe(n state.Node, reports nodeReports, apiErr error) (o observation, reason string) {
	r, _ := w.Lab.Parts().Get(n.Part())
	usage, alive := r.Usage()
	o = observation{
		at:       time.Now(),
		progress: progress{logged: w.loggedBytes(n), heartbeat: reports.heartbeats[n.Name]},
		cpu:      usage.CPU,
		ended:    !alive,
		apiDown:  apiErr != nil,
	}
	object, registered := reports.nodes[n.Name]
	switch {
	case o.ended: // the apiserver notices that much later
		reason = "its machine has ended"
	case o.apiDown:
		reason = apiErr.Error()
	case registered:
		reason = w.notReady(n, object)
	default:
		reason = "has not registered"
	}
	o.ready = reason == ""
	return o, reason
}

// orGiveUp adds a diagnosis to the error if any node is lost, and makes it permanent.
func (w *nodeWatch) orGiveUp(missing error, lost []string) error {
	if len(lost) == 0 {
		return missing
	}
	now := time.Now()
	report := []string{fmt.Sprintf("gave up on %s after %s: %v", strings.Join(lost, ", "), seconds(now.Sub(w.begin)), missing)}
	for _, n := range w.nodes {
		if s := w.states[n.Name]; !s.isReady {
			report = append(report, w.diagnosis(n, s, now))
		}
	}
	return backoff.Permanent(errors.New(strings.Join(report, "\n")))
}

// powerCycle kills the machine and starts it again, emulated: KVM that passed its trial may still fail
// under a whole node.
func (w *nodeWatch) powerCycle(ctx context.Context, n state.Node, s nodeState) error {
	text := fmt.Sprintf("%s, last: %s; power-cycled (%d of %d)",
		w.machineStatus(n, s, time.Now()), lastMessage(w.nodeTails(n)), s.powerCycles+1, maxPowerCycles)
	a := w.artifacts
	a.accelerator = machine.Emulated
	if w.artifacts.accelerator == machine.KVM && s.powerCycles == 0 {
		text += ", now emulated instead of under KVM"
	}
	w.Steps.Printf("          %s: %s", n.Name, text)
	if err := w.Lab.Parts().Stop(ctx, n.Part(), stopGrace); err != nil {
		return err
	}
	if err := w.markConsole(n, text); err != nil {
		return err
	}
	if err := w.startNode(ctx, w.settings, n, a); err != nil {
		return err
	}
	w.states[n.Name] = s.restarted(time.Now())
	return nil
}
