package orchestrate

import (
	"context"

	"gnuthought.com/efs-stunnel/hack/lab/internal/proc"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/admin"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
	"gnuthought.com/efs-stunnel/hack/lab/internal/step"
)

// StandinCommand is the hidden subcommand that runs the EFS stand-in.
const StandinCommand = "internal-standin"

func (o *Orchestrator) startStandin(ctx context.Context, notes *step.Notes, s state.Settings, toolsRoot string) error {
	program, digest, err := o.ownProgram()
	if err != nil {
		return err
	}
	err = o.ensure(ctx, proc.Spec{
		Name:    standinPart,
		Args:    []string{program, "--name", o.Lab.Name, StandinCommand, toolsRoot},
		LogFile: o.Lab.LogFile(standinPart),
		NetNS:   o.Lab.NetNSPath(),
		Address: state.HostPort(state.EFSAPIPort),
		Digest:  digest,
	})
	if err != nil {
		return err
	}
	if err := o.awaitStandin(ctx, notes); err != nil {
		return err
	}
	for _, n := range s.Nodes {
		if err := o.registerNode(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// awaitStandin waits until every file system of the stand-in is served.
func (o *Orchestrator) awaitStandin(ctx context.Context, notes *step.Notes) error {
	c := admin.NewClient(o.Lab.StandinSocket())
	return await(ctx, notes, partLimit, "the EFS stand-in", func(ctx context.Context) error {
		if err := c.Ready(ctx); err != nil {
			return o.orEnded(err, standinPart)
		}
		return nil
	})
}

// registerNode makes the stand-in answer the node's requests for instance metadata.
func (o *Orchestrator) registerNode(ctx context.Context, n state.Node) error {
	return admin.NewClient(o.Lab.StandinSocket()).PutNode(ctx, inventory.Node{
		Name: n.Name, Address: n.Address(), PodCIDR: n.PodCIDR(), MAC: n.MAC(), Zone: n.Zone,
	})
}

func (o *Orchestrator) unregisterNode(ctx context.Context, n state.Node) error {
	return admin.NewClient(o.Lab.StandinSocket()).DeleteNode(ctx, n.Name)
}
