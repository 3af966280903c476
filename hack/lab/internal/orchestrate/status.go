package orchestrate

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/hack/lab/internal/network"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
)

// PartStatus is one line of the status table.
type PartStatus struct {
	Part    string `json:"part"`
	State   string `json:"state"`
	PID     int    `json:"pid,omitempty"`
	Address string `json:"address,omitempty"`
	Log     string `json:"log,omitempty"`
}

// Status reports the state of every part.
func (o *Orchestrator) Status(ctx context.Context) ([]PartStatus, error) {
	s, err := o.Lab.Load()
	if err != nil {
		return nil, err
	}
	parts := []PartStatus{o.networkStatus()}
	records, err := o.Lab.Parts().List()
	if err != nil {
		return nil, err
	}
	ready := o.readiness(ctx, s.Nodes)
	seen := make(map[string]bool)
	for _, r := range records {
		seen[r.Name] = true
		p := PartStatus{Part: r.Name, State: "dead", Address: r.Address, Log: r.LogFile}
		if r.Alive() {
			p.State, p.PID = "running", r.PID
			if note := ready[r.Name]; note != "" {
				p.State += ", " + note
			}
		}
		parts = append(parts, p)
	}
	for _, n := range s.Nodes {
		if !seen[n.Part()] {
			parts = append(parts, PartStatus{Part: n.Part(), State: "stopped", Address: n.Address(), Log: o.Lab.LogFile(n.Name)})
		}
	}
	return parts, nil
}

func (o *Orchestrator) networkStatus() PartStatus {
	p := PartStatus{Part: "network", State: "missing", Address: o.Lab.NetNS()}
	if network.Exists(o.Lab) {
		p.State = "up"
	}
	return p
}

// readiness reads the nodes' readiness. It gives up soon: the state of the apiserver itself is shown in
// its own line of the table.
func (o *Orchestrator) readiness(ctx context.Context, nodes []state.Node) map[string]string {
	notes := make(map[string]string)
	c, err := client(o.Lab)
	if err != nil {
		return notes
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	list, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return notes
	}
	for _, n := range nodes {
		notes[n.Part()] = "NotReady"
		for i := range list.Items {
			if list.Items[i].Name == n.Name && o.notReady(n, &list.Items[i]) == "" {
				notes[n.Part()] = "Ready"
			}
		}
	}
	return notes
}
