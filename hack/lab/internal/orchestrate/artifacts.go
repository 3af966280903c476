package orchestrate

import (
	"context"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sync/errgroup"

	"gnuthought.com/efs-stunnel/hack/lab/internal/artifacts"
	"gnuthought.com/efs-stunnel/hack/lab/internal/host"
	"gnuthought.com/efs-stunnel/hack/lab/internal/machine"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/ganesha"
	"gnuthought.com/efs-stunnel/hack/lab/internal/step"
)

// artifactSet is everything that labs are made of.
type artifactSet struct {
	programs     artifacts.Components
	programsDisk string
	emulator     artifacts.Emulator
	nodeImage    artifacts.NodeImage
	accelerator  machine.Accelerator
	toolsRoot    string // docker-registry and nfs-ganesha, extracted
	toolboxRoot  string
	pause        string // program
}

// Prepare makes everything that labs are made of, and returns the folder of extracted tools.
func (o *Orchestrator) Prepare(ctx context.Context) (toolsRoot string, err error) {
	if err := host.CheckRoot(); err != nil {
		return "", err
	}
	maker, err := artifacts.NewMaker()
	if err != nil {
		return "", err
	}
	a, err := o.makeArtifacts(ctx, maker)
	return a.toolsRoot, err
}

// Components makes only the Kubernetes programs and etcd, and returns their folder. It needs Go and
// nothing else.
func (o *Orchestrator) Components(ctx context.Context) (dir string, err error) {
	maker, err := artifacts.NewMaker()
	if err != nil {
		return "", err
	}
	programs, err := o.makeComponents(ctx, maker)
	return programs.Dir, err
}

// Stunnel makes a program that runs Debian's stunnel with Debian's libraries, whatever is installed on
// this machine, and returns its path.
func (o *Orchestrator) Stunnel(ctx context.Context) (program string, err error) {
	return o.extractedProgram(ctx, "stunnel", artifacts.Maker.Stunnel)
}

// NFSServer extracts Debian's nfs-ganesha and stunnel with all that they need, and returns the folder.
func (o *Orchestrator) NFSServer(ctx context.Context) (dir string, err error) {
	return o.extractedProgram(ctx, "NFS server", artifacts.Maker.NFSServer)
}

// Prometheus does the same as Stunnel for Debian's prometheus and promtool, and returns their folder.
func (o *Orchestrator) Prometheus(ctx context.Context) (dir string, err error) {
	return o.extractedProgram(ctx, "Prometheus", artifacts.Maker.Prometheus)
}

// Applications makes the root folder of an image with git, SQLite and PostgreSQL, and returns its path.
func (o *Orchestrator) Applications(ctx context.Context) (root string, err error) {
	return o.extractedProgram(ctx, "applications", artifacts.Maker.ApplicationsRoot)
}

func (o *Orchestrator) extractedProgram(ctx context.Context, title string, makePath func(artifacts.Maker, context.Context, io.Writer) (string, error)) (path string, err error) {
	if err := host.CheckRoot(); err != nil {
		return "", err
	}
	maker, err := artifacts.NewMaker()
	if err != nil {
		return "", err
	}
	err = o.Steps.Do(ctx, title, func(ctx context.Context, notes *step.Notes) error {
		if _, err := host.InstallPackages(ctx, notes); err != nil {
			return fmt.Errorf("installing what extracts packages: %w", err)
		}
		path, err = makePath(maker, ctx, notes)
		return err
	})
	return path, err
}

// Browser installs a headless browser, and returns its path.
func (o *Orchestrator) Browser(ctx context.Context) (program string, err error) {
	return o.installedProgram(ctx, "browser", host.InstallBrowser)
}

// Buildah installs buildah and mmdebstrap, and returns the path of the first.
func (o *Orchestrator) Buildah(ctx context.Context) (program string, err error) {
	return o.installedProgram(ctx, "buildah", host.InstallBuildah)
}

// Arm64 installs QEMU's emulation of arm64 for single programs, and returns its path.
func (o *Orchestrator) Arm64(ctx context.Context) (program string, err error) {
	return o.installedProgram(ctx, "emulation of arm64", host.InstallArm64)
}

// Strace installs strace, and returns its path.
func (o *Orchestrator) Strace(ctx context.Context) (program string, err error) {
	return o.installedProgram(ctx, "strace", host.InstallStrace)
}

func (o *Orchestrator) installedProgram(ctx context.Context, title string, install func(context.Context, io.Writer) (string, error)) (program string, err error) {
	err = o.Steps.Do(ctx, title, func(ctx context.Context, notes *step.Notes) error {
		program, err = install(ctx, notes)
		return err
	})
	return program, err
}

// makeArtifacts makes everything that is not part of one lab. The compiler and the package tools run at
// the same time: one works while the other waits.
func (o *Orchestrator) makeArtifacts(ctx context.Context, maker artifacts.Maker) (artifactSet, error) {
	var a artifactSet
	err := o.Steps.Do(ctx, "Debian packages", func(ctx context.Context, notes *step.Notes) error {
		installed, err := host.InstallPackages(ctx, notes)
		if len(installed) == 0 {
			notes.Result("all installed before")
		} else {
			notes.Result("installed %s", strings.Join(installed, " "))
		}
		return err
	})
	if err != nil {
		return a, err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return o.makePrograms(ctx, maker, &a) })
	group.Go(func() error { return o.makeFileSystems(ctx, maker, &a) })
	err = group.Wait()
	return a, err
}

func (o *Orchestrator) makePrograms(ctx context.Context, maker artifacts.Maker, a *artifactSet) (err error) {
	if a.programs, err = o.makeComponents(ctx, maker); err != nil {
		return err
	}
	return o.Steps.Do(ctx, "disk of the nodes' programs", func(ctx context.Context, _ *step.Notes) (err error) {
		if a.programsDisk, err = maker.ComponentsDisk(ctx, a.programs); err != nil {
			return err
		}
		a.pause, err = maker.Pause(ctx)
		return err
	})
}

func (o *Orchestrator) makeComponents(ctx context.Context, maker artifacts.Maker) (programs artifacts.Components, err error) {
	err = o.Steps.Do(ctx, artifacts.ComponentsTitle, func(ctx context.Context, notes *step.Notes) (err error) {
		var made bool
		programs, made, err = maker.Components(ctx, notes)
		notes.Result("%s, %s", programs.Version, origin(made))
		return err
	})
	return programs, err
}

// toolsPackages returns the packages that are extracted for the parts of the lab that are not nodes.
func toolsPackages() []string { return append(ganesha.Packages(), registryPackage) }

// Plan returns the parts of every lab, whether each is cached, and the time that it usually takes.
func Plan(ctx context.Context) ([]artifacts.Part, error) {
	maker, err := artifacts.NewMaker()
	if err != nil {
		return nil, err
	}
	return maker.Plan(ctx, toolsPackages())
}

func (o *Orchestrator) makeFileSystems(ctx context.Context, maker artifacts.Maker, a *artifactSet) error {
	var err error
	if a.nodeImage, err = makeArtifact(ctx, o.Steps, artifacts.NodeTitle, maker.NodeImage); err != nil {
		return err
	}
	tools := func(ctx context.Context, notes io.Writer) (string, bool, error) {
		return maker.ToolsRoot(ctx, notes, toolsPackages())
	}
	if a.toolsRoot, err = makeArtifact(ctx, o.Steps, artifacts.ToolsTitle, tools); err != nil {
		return err
	}
	if a.toolboxRoot, err = makeArtifact(ctx, o.Steps, artifacts.ToolboxTitle, maker.ToolboxRoot); err != nil {
		return err
	}
	if a.emulator, err = makeArtifact(ctx, o.Steps, artifacts.EmulatorTitle, maker.Emulator); err != nil {
		return err
	}
	return o.Steps.Do(ctx, "accelerator", func(ctx context.Context, notes *step.Notes) error {
		accelerator, err := machine.DetectAccelerator(ctx, maker.Cache, a.emulator, a.nodeImage)
		a.accelerator = accelerator
		notes.Result("%s", accelerator)
		return err
	})
}

// makeArtifact runs one step that makes an artifact or finds it in the cache.
func makeArtifact[T any](ctx context.Context, steps *step.Printer, title string, get func(context.Context, io.Writer) (T, bool, error)) (T, error) {
	var artifact T
	err := steps.Do(ctx, title, func(ctx context.Context, notes *step.Notes) (err error) {
		var made bool
		artifact, made, err = get(ctx, notes)
		notes.Result("%s", origin(made))
		return err
	})
	return artifact, err
}

func origin(made bool) string {
	if made {
		return "made"
	}
	return "from the cache"
}
