package orchestrate

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"gnuthought.com/efs-stunnel/hack/lab/internal/artifacts"
	"gnuthought.com/efs-stunnel/hack/lab/internal/cache"
	"gnuthought.com/efs-stunnel/hack/lab/internal/controlplane"
	"gnuthought.com/efs-stunnel/hack/lab/internal/host"
	"gnuthought.com/efs-stunnel/hack/lab/internal/machine"
	"gnuthought.com/efs-stunnel/hack/lab/internal/network"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/ganesha"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
	"gnuthought.com/efs-stunnel/hack/lab/internal/step"
)

// material is what a lab is made of.
type material struct {
	programs     artifacts.Components
	programsDisk string
	emulator     artifacts.Emulator
	nodeImage    artifacts.NodeImage
	accelerator  machine.Accelerator
	toolsRoot    string // docker-registry and nfs-ganesha, extracted
	toolboxRoot  string
	pause        string // program
}

// Memory besides the nodes', and beside each of them, in MiB; seen while the
// smoke test ran, and rounded up.
const (
	baseMemoryMiB = 1500
	nodeExtraMiB  = 400
)

// Disk for a first run, with Go's build cache, and for later ones, in GiB.
const (
	coldDiskGiB = 10
	warmDiskGiB = 3
)

// Up makes the lab run as the settings say; what runs so already is kept.
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
	parts, err := o.collect(ctx, maker)
	if err != nil {
		return err
	}
	if err := o.run(ctx, &settings, parts); err != nil {
		return err
	}
	o.Steps.Printf("%8s  lab %s is up: export KUBECONFIG=%s", fmt.Sprintf("%.1f s", time.Since(begin).Seconds()), o.Lab.Name, o.Lab.Kubeconfig())
	return nil
}

// Prepare makes everything that labs have in common, and returns the folder
// of extracted tools.
func (o *Orchestrator) Prepare(ctx context.Context) (toolsRoot string, err error) {
	if err := host.CheckRoot(); err != nil {
		return "", err
	}
	maker, err := artifacts.NewMaker()
	if err != nil {
		return "", err
	}
	m, err := o.collect(ctx, maker)
	return m.toolsRoot, err
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

// collect makes everything that does not belong to one lab. The compiler and
// the package tools run at once: one is busy while the other waits.
func (o *Orchestrator) collect(ctx context.Context, maker artifacts.Maker) (material, error) {
	var m material
	err := o.Steps.Do(ctx, "Debian packages", func(ctx context.Context, notes *step.Notes) error {
		installed, err := host.InstallPackages(ctx, notes)
		notes.Result("%s", installedText(installed))
		return err
	})
	if err != nil {
		return m, err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return o.collectPrograms(ctx, maker, &m) })
	group.Go(func() error { return o.collectFileSystems(ctx, maker, &m) })
	return m, group.Wait()
}

func installedText(installed []string) string {
	if len(installed) == 0 {
		return "all there"
	}
	return "installed " + strings.Join(installed, " ")
}

func (o *Orchestrator) collectPrograms(ctx context.Context, maker artifacts.Maker, m *material) error {
	return o.Steps.Do(ctx, "Kubernetes and etcd", func(ctx context.Context, notes *step.Notes) error {
		programs, made, err := maker.Components(ctx, notes)
		if err != nil {
			return err
		}
		m.programs = programs
		notes.Result("%s, %s", programs.Version, origin(made))
		if m.programsDisk, err = maker.ComponentsDisk(ctx, programs); err != nil {
			return err
		}
		m.pause, err = maker.Pause(ctx)
		return err
	})
}

func (o *Orchestrator) collectFileSystems(ctx context.Context, maker artifacts.Maker, m *material) error {
	var err error
	if m.nodeImage, err = artifact(ctx, o.Steps, "node file system and kernel", maker.NodeImage); err != nil {
		return err
	}
	tools := func(ctx context.Context, notes io.Writer) (string, bool, error) {
		return maker.ToolsRoot(ctx, notes, append(ganesha.Packages(), registryPackage))
	}
	if m.toolsRoot, err = artifact(ctx, o.Steps, "tools: nfs-ganesha, registry", tools); err != nil {
		return err
	}
	if m.toolboxRoot, err = artifact(ctx, o.Steps, "toolbox", maker.ToolboxRoot); err != nil {
		return err
	}
	if m.emulator, err = artifact(ctx, o.Steps, "QEMU", maker.Emulator); err != nil {
		return err
	}
	return o.Steps.Do(ctx, "accelerator", func(ctx context.Context, notes *step.Notes) error {
		accelerator, err := machine.DetectAccelerator(ctx, maker.Cache, m.emulator, m.nodeImage)
		m.accelerator = accelerator
		notes.Result("%s", accelerator)
		return err
	})
}

// artifact is a step that gets one thing from get, and says whether it was made or in the cache.
func artifact[T any](ctx context.Context, steps *step.Printer, title string, get func(context.Context, io.Writer) (T, bool, error)) (T, error) {
	var thing T
	err := steps.Do(ctx, title, func(ctx context.Context, notes *step.Notes) error {
		var made bool
		var err error
		thing, made, err = get(ctx, notes)
		notes.Result("%s", origin(made))
		return err
	})
	return thing, err
}

func origin(made bool) string {
	if made {
		return "made"
	}
	return "from the cache"
}

// run starts what belongs to this lab. The machines boot while the control
// plane starts: their kubelets ask again until it answers.
func (o *Orchestrator) run(ctx context.Context, s *state.Settings, m material) error {
	if err := o.Steps.Do(ctx, "network "+o.Lab.NetNS(), func(ctx context.Context, _ *step.Notes) error { return network.Up(ctx, o.Lab) }); err != nil {
		return err
	}
	if err := o.Steps.Do(ctx, "gateway on 127.0.0.1", func(ctx context.Context, _ *step.Notes) error { return o.startGateway(ctx, s) }); err != nil {
		return err
	}
	plane := controlplane.Plane{Lab: o.Lab, Settings: *s, Programs: m.programs}
	if err := o.Steps.Do(ctx, "certificates", func(context.Context, *step.Notes) error { return plane.Prepare() }); err != nil {
		return err
	}
	if err := o.Steps.Do(ctx, "kubectl in the lab's folder", func(context.Context, *step.Notes) error { return o.linkKubectl(m.programs) }); err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return o.startCluster(groupCtx, plane, *s, m) })
	group.Go(func() error {
		return o.Steps.Do(groupCtx, "EFS stand-in", func(ctx context.Context, notes *step.Notes) error {
			return o.startStandin(ctx, notes, *s, m.toolsRoot)
		})
	})
	if err := group.Wait(); err != nil {
		return err
	}
	return o.Steps.Do(ctx, fmt.Sprintf("nodes Ready (%d)", len(s.Nodes)), func(ctx context.Context, notes *step.Notes) error {
		return o.awaitNodes(ctx, notes, *s, s.Nodes, m)
	})
}

func (o *Orchestrator) startCluster(ctx context.Context, plane controlplane.Plane, s state.Settings, m material) error {
	for _, n := range s.Nodes {
		title := fmt.Sprintf("machine %s at %s", n.Name, n.Address())
		if err := o.Steps.Do(ctx, title, func(ctx context.Context, _ *step.Notes) error { return o.startNode(ctx, s, n, m) }); err != nil {
			return err
		}
	}
	if err := o.Steps.Do(ctx, "control plane", func(ctx context.Context, notes *step.Notes) error { return o.startPlane(ctx, notes, plane) }); err != nil {
		return err
	}
	return o.Steps.Do(ctx, "registry and images", func(ctx context.Context, notes *step.Notes) error {
		return o.startRegistry(ctx, notes, s, m)
	})
}

// linkKubectl puts the kubectl of the lab's version where a person finds it.
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
