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

// nodeWatch waits for nodes, and power-cycles the machines of those that hang.
type nodeWatch struct {
	*Orchestrator
	client   kubernetes.Interface
	settings state.Settings
	nodes    []state.Node
	material material
	begin    time.Time
	vigils   map[string]vigil // by node name
}

// awaitNodes waits until every node has been Ready since its machine started:
// the apiserver remembers the Ready of a machine that was stopped. Its error
// tells what is known of the nodes that are missing.
func (o *Orchestrator) awaitNodes(ctx context.Context, notes *step.Notes, s state.Settings, nodes []state.Node, m material) error {
	c, err := client(o.Lab)
	if err != nil {
		return err
	}
	w := nodeWatch{
		Orchestrator: o, client: c, settings: s, nodes: nodes, material: m,
		begin: time.Now(), vigils: make(map[string]vigil),
	}
	for _, n := range nodes {
		w.vigils[n.Name] = newVigil(w.begin)
	}
	// The watch gives up by itself, and with more to say.
	const limit = nodeLimit + maxPowerCycles*secondChance + time.Minute
	err = await(ctx, notes, limit, "nodes", w.look)
	if cycles := w.powerCycles(); cycles > 0 {
		notes.Result("power cycles: %d", cycles)
	}
	return err
}

func (w *nodeWatch) powerCycles() int {
	sum := 0
	for _, v := range w.vigils {
		sum += v.powerCycles
	}
	return sum
}

// look looks at every node and does what its vigil asks for. It returns what
// is missing, permanently if that is given up.
func (w *nodeWatch) look(ctx context.Context) error {
	view, blind := w.observe(ctx)
	var missing, lost []string
	for _, n := range w.nodes {
		s, why := w.sight(n, view, blind)
		if why != "" {
			missing = append(missing, n.Name+": "+why)
		}
		v := w.vigils[n.Name].after(s)
		w.vigils[n.Name] = v
		switch v.judge(s) {
		case powerCycle:
			if err := w.powerCycle(ctx, n, v); err != nil {
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

// clusterView is what the apiserver knows of the nodes.
type clusterView struct {
	nodes      map[string]*corev1.Node
	heartbeats map[string]time.Time
}

// observe reads the nodes and their Leases, which a kubelet renews every ten
// seconds; the Node itself it may leave alone for five minutes.
func (w *nodeWatch) observe(ctx context.Context) (clusterView, error) {
	nodes, err := w.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return clusterView{}, fmt.Errorf("listing nodes: %w", err)
	}
	leases, err := w.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{})
	if err != nil {
		return clusterView{}, fmt.Errorf("listing the nodes' leases: %w", err)
	}
	view := clusterView{nodes: make(map[string]*corev1.Node), heartbeats: make(map[string]time.Time)}
	for i := range nodes.Items {
		view.nodes[nodes.Items[i].Name] = &nodes.Items[i]
	}
	for i := range leases.Items {
		if renewed := leases.Items[i].Spec.RenewTime; renewed != nil {
			view.heartbeats[leases.Items[i].Name] = renewed.Time
		}
	}
	return view, nil
}

// sight looks at one node, and tells why it is not Ready. blind is why the
// apiserver could not be asked.
func (w *nodeWatch) sight(n state.Node, view clusterView, blind error) (s sighting, why string) {
	r, _ := w.Lab.Parts().Get(n.Part())
	usage, alive := r.Usage()
	s = sighting{
		at:    time.Now(),
		sign:  sign{logged: w.loggedBytes(n), heartbeat: view.heartbeats[n.Name]},
		cpu:   usage.CPU,
		ended: !alive,
		blind: blind != nil,
	}
	why = w.missing(n, view)
	switch {
	case s.ended: // the apiserver notices that much later
		why = "its machine has ended"
	case s.blind:
		why = blind.Error()
	}
	s.ready = why == ""
	return s, why
}

func (w *nodeWatch) missing(n state.Node, view clusterView) string {
	if object, ok := view.nodes[n.Name]; ok {
		return w.notReady(n, object)
	}
	return "has not registered"
}

// orGiveUp adds to what is missing what is known of the nodes, if any is lost.
func (w *nodeWatch) orGiveUp(missing error, lost []string) error {
	if len(lost) == 0 {
		return missing
	}
	now := time.Now()
	story := []string{fmt.Sprintf("gave up on %s after %s: %v", strings.Join(lost, ", "), seconds(now.Sub(w.begin)), missing)}
	for _, n := range w.nodes {
		if v := w.vigils[n.Name]; !v.isReady {
			story = append(story, w.evidence(n, v, now))
		}
	}
	return backoff.Permanent(errors.New(strings.Join(story, "\n")))
}

// powerCycle pulls the machine's plug and starts it again, emulated: KVM that
// takes a trial may still fail a whole node.
func (w *nodeWatch) powerCycle(ctx context.Context, n state.Node, v vigil) error {
	text := fmt.Sprintf("%s, last: %s; power-cycled (%d of %d)",
		w.machineText(n, v, time.Now()), lastWord(w.nodeTails(n)), v.powerCycles+1, maxPowerCycles)
	m := w.material
	m.accelerator = machine.Emulated
	if w.material.accelerator == machine.KVM && v.powerCycles == 0 {
		text += ", now emulated instead of under KVM"
	}
	w.Steps.Printf("          %s: %s", n.Name, text)
	if err := w.Lab.Parts().Stop(ctx, n.Part(), stopGrace); err != nil {
		return err
	}
	if err := w.markConsole(n, text); err != nil {
		return err
	}
	if err := w.startNode(ctx, w.settings, n, m); err != nil {
		return err
	}
	w.vigils[n.Name] = v.afterPowerCycle(time.Now())
	return nil
}
