package orchestrate

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"gnuthought.com/efs-stunnel/hack/lab/internal/artifacts"
	"gnuthought.com/efs-stunnel/hack/lab/internal/cache"
	"gnuthought.com/efs-stunnel/hack/lab/internal/controlplane"
	"gnuthought.com/efs-stunnel/hack/lab/internal/host"
	"gnuthought.com/efs-stunnel/hack/lab/internal/network"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
	"gnuthought.com/efs-stunnel/hack/lab/internal/step"
)

// Memory of everything but the nodes, and what each node takes beyond its own, in MiB. Measured during
// the smoke test and rounded up.
const (
	baseMemoryMiB = 1500
	nodeExtraMiB  = 400
)

// Disk for a first run, with Go's build cache, and for later ones, in GiB.
const (
	coldDiskGiB = 10
	warmDiskGiB = 3
)

// Up starts the lab with its settings, which change has changed. Parts that run with these settings are
// kept.
func (o *Orchestrator) Up(ctx context.Context, change func(s *state.Settings, isNew bool) error) error {
	if err := host.CheckRoot(); err != nil {
		return err
	}
	begin := time.Now()
	unlock, err := o.lock()
	if err != nil {
		return err
	}
	defer unlock()
	settings, isNew, err := o.Lab.LoadOrDefault()
	if err != nil {
		return err
	}
	if err := change(&settings, isNew); err != nil {
		return err
	}
	maker, err := artifacts.NewMaker()
	if err != nil {
		return err
	}
	if err := o.preflight(maker.Cache, settings); err != nil {
		return err
	}
	a, err := o.makeArtifacts(ctx, maker)
	if err != nil {
		return err
	}
	if err := o.run(ctx, &settings, a); err != nil {
		return err
	}
	o.Steps.Printf("%8s  lab %s is up: export KUBECONFIG=%s", fmt.Sprintf("%.1f s", time.Since(begin).Seconds()), o.Lab.Name, o.Lab.Kubeconfig())
	return nil
}

func (o *Orchestrator) preflight(c cache.Cache, s state.Settings) error {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return fmt.Errorf("making the cache folder: %w", err)
	}
	needs := host.Needs{DiskGiB: coldDiskGiB, DiskPaths: []string{c.Dir, o.Lab.Dir}}
	if warm, _ := filepath.Glob(filepath.Join(c.Dir, "components-v*")); len(warm) > 0 {
		needs.DiskGiB = warmDiskGiB
	}
	needs.MemoryMiB = baseMemoryMiB
	for _, n := range s.Nodes {
		if r, ok := o.Lab.Parts().Get(n.Part()); !ok || !r.Alive() {
			needs.MemoryMiB += s.NodeMemoryMiB + nodeExtraMiB
		}
	}
	return host.Preflight(needs)
}

// run starts the parts of this lab. The machines boot while the control plane starts: their kubelets
// retry until it answers.
func (o *Orchestrator) run(ctx context.Context, s *state.Settings, a artifactSet) error {
	var plane controlplane.Plane
	err := o.doAll(ctx, []titledStep{
		{"network " + o.Lab.NetNS(), func(ctx context.Context, _ *step.Notes) error { return network.Up(ctx, o.Lab) }},
		{"gateway on 127.0.0.1", func(ctx context.Context, _ *step.Notes) error { return o.startGateway(ctx, s) }},
		{"certificates", func(context.Context, *step.Notes) error {
			plane = controlplane.Plane{Lab: o.Lab, Settings: *s, Programs: a.programs} // with the gateway's ports
			return plane.Prepare()
		}},
		{"kubectl in the lab's folder", func(context.Context, *step.Notes) error { return o.linkKubectl(a.programs) }},
	})
	if err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return o.startCluster(groupCtx, plane, *s, a) })
	group.Go(func() error {
		return o.Steps.Do(groupCtx, "EFS stand-in", func(ctx context.Context, notes *step.Notes) error {
			return o.startStandin(ctx, notes, *s, a.toolsRoot)
		})
	})
	if err := group.Wait(); err != nil {
		return err
	}
	return o.Steps.Do(ctx, fmt.Sprintf("nodes Ready (%d)", len(s.Nodes)), func(ctx context.Context, notes *step.Notes) error {
		return o.awaitNodes(ctx, notes, *s, s.Nodes, a)
	})
}

func (o *Orchestrator) startCluster(ctx context.Context, plane controlplane.Plane, s state.Settings, a artifactSet) error {
	var steps []titledStep
	for _, n := range s.Nodes {
		steps = append(steps, titledStep{
			fmt.Sprintf("machine %s at %s", n.Name, n.Address()),
			func(ctx context.Context, _ *step.Notes) error { return o.startNode(ctx, s, n, a) },
		})
	}
	return o.doAll(ctx, append(steps,
		titledStep{"control plane", func(ctx context.Context, notes *step.Notes) error { return o.startPlane(ctx, notes, plane) }},
		titledStep{"registry and images", func(ctx context.Context, notes *step.Notes) error { return o.startRegistry(ctx, notes, s, a) }},
	))
}

// linkKubectl links the kubectl of the lab's version into the lab's folder.
func (o *Orchestrator) linkKubectl(programs artifacts.Components) error {
	link := o.Lab.Path("kubectl")
	if err := os.RemoveAll(link); err != nil {
		return fmt.Errorf("linking kubectl: %w", err)
	}
	if err := os.Symlink(programs.Program("kubectl"), link); err != nil {
		return fmt.Errorf("linking kubectl: %w", err)
	}
	return nil
}
