package orchestrate

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"gnuthought.com/efs-stunnel/hack/lab/internal/controlplane"
	"gnuthought.com/efs-stunnel/hack/lab/internal/pki"
	"gnuthought.com/efs-stunnel/hack/lab/internal/proc"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
	"gnuthought.com/efs-stunnel/hack/lab/internal/step"
)

// StandinCommand is the hidden subcommand that runs the EFS stand-in.
const StandinCommand = "internal-standin"

// The one pair of credentials that the stand-in knows. It opens nothing but
// this lab, so it may stand in the source.
const (
	AccessKeyID     = "AKIALABLABLABLABLAB0"
	SecretAccessKey = "the-secret-of-every-lab"
)

// efsCA signs the mount targets' certificates, as Amazon's roots do outside.
const efsCA = "efs-ca"

// EFSCAFile is what clients of the mount targets must trust.
func EFSCAFile(lab state.Lab) string { return controlplane.PKI(lab).Pair(efsCA).CertFile }

func (o *Orchestrator) startStandin(ctx context.Context, notes *step.Notes, s state.Settings, toolsRoot string) error {
	ca, err := controlplane.PKI(o.Lab).Authority(efsCA)
	if err != nil {
		return err
	}
	program, digest, err := o.ownProgram()
	if err != nil {
		return err
	}
	file := o.Lab.Path("standin.json")
	config, err := json.MarshalIndent(o.standinConfig(ca, toolsRoot), "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the EFS stand-in's configuration: %w", err)
	}
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return fmt.Errorf("writing the EFS stand-in's configuration: %w", err)
	}
	err = o.ensure(ctx, proc.Spec{
		Name:    standinPart,
		Args:    []string{program, StandinCommand, "--config", file},
		LogFile: o.Lab.LogFile(standinPart),
		NetNS:   o.Lab.NetNSPath(),
		Address: inside(state.EFSAPIPort),
		Digest:  digest + string(config),
	}, nil)
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

func (o *Orchestrator) standinConfig(ca pki.Pair, toolsRoot string) standin.Config {
	zones := make([]standin.Zone, 0, len(state.Zones()))
	for _, z := range state.Zones() {
		zones = append(zones, standin.Zone{Name: z.Name, ID: z.ID, SubnetID: z.SubnetID, CIDR: z.CIDR})
	}
	return standin.Config{
		StateDir:        o.Lab.Path("efs"),
		LogDir:          o.Lab.Path("logs"),
		AdminSocket:     o.Lab.StandinSocket(),
		Region:          state.Region,
		VPCID:           state.VPCID,
		Zones:           zones,
		Bridge:          state.Bridge,
		APIAddress:      inside(state.EFSAPIPort),
		MetadataAddress: state.MetadataAddress + ":80",
		DNSAddress:      inside(53),
		Hosts:           map[string]string{state.RegistryHost: state.HostAddress},
		CACertFile:      ca.CertFile,
		CAKeyFile:       ca.KeyFile,
		AccessKeyID:     AccessKeyID,
		SecretAccessKey: SecretAccessKey,
		GaneshaRoot:     toolsRoot,
		ProcDir:         o.Lab.Parts().Path,
	}
}

// awaitStandin waits until every file system of the stand-in is served.
func (o *Orchestrator) awaitStandin(ctx context.Context, notes *step.Notes) error {
	c := standin.NewClient(o.Lab.StandinSocket())
	return await(ctx, notes, partLimit, "the EFS stand-in", func(ctx context.Context) error {
		if err := c.Ready(ctx); err != nil {
			return o.unlessDead(err, standinPart)
		}
		return nil
	})
}

// registerNode lets the node's requests for instance metadata be answered.
func (o *Orchestrator) registerNode(ctx context.Context, n state.Node) error {
	return standin.NewClient(o.Lab.StandinSocket()).PutNode(ctx, standin.Node{
		Name: n.Name, Address: n.Address(), PodCIDR: n.PodCIDR(), MAC: n.MAC(), Zone: n.Zone,
	})
}

func (o *Orchestrator) forgetNode(ctx context.Context, n state.Node) error {
	return standin.NewClient(o.Lab.StandinSocket()).DeleteNode(ctx, n.Name)
}
