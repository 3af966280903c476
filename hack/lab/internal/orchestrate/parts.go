package orchestrate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/hack/lab/internal/controlplane"
	"gnuthought.com/efs-stunnel/hack/lab/internal/gateway"
	"gnuthought.com/efs-stunnel/hack/lab/internal/images"
	"gnuthought.com/efs-stunnel/hack/lab/internal/network"
	"gnuthought.com/efs-stunnel/hack/lab/internal/proc"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
	"gnuthought.com/efs-stunnel/hack/lab/internal/step"
)

const (
	gatewayPart  = "gateway"
	registryPart = "registry"
	standinPart  = "efs"
)

// startGateway opens the lab's ports on 127.0.0.1 and saves them in the settings: a kubeconfig remains
// valid as long as the lab exists.
func (o *Orchestrator) startGateway(ctx context.Context, s *state.Settings) error {
	program, digest, err := o.ownProgram()
	if err != nil {
		return err
	}
	if o.runs(o.gatewaySpec(program, digest, *s)) {
		return nil
	}
	// An old gateway still has the ports.
	if err := o.Lab.Parts().Stop(ctx, gatewayPart, stopGrace); err != nil {
		return err
	}
	var files []*os.File
	for _, port := range []*int{&s.APIServerPort, &s.RegistryPort, &s.EFSAPIPort} {
		f, chosen, err := gateway.Listen(*port)
		if errors.Is(err, unix.EADDRINUSE) {
			return fmt.Errorf("port %d of 127.0.0.1 is in use by another program: end that program, or choose another port with --apiserver-port, --registry-port or --efs-api-port", *port)
		}
		if err != nil {
			return err
		}
		*port = chosen
		files = append(files, f)
	}
	if err := o.Lab.Save(*s); err != nil {
		return err
	}
	_, err = o.Lab.Parts().Start(o.gatewaySpec(program, digest, *s), files...)
	for _, f := range files {
		err = errors.Join(err, f.Close())
	}
	return err
}

func (o *Orchestrator) gatewaySpec(program, digest string, s state.Settings) proc.Spec {
	return proc.Spec{
		Name: gatewayPart,
		Args: []string{
			program, gateway.Command,
			state.HostPort(state.APIServerPort), state.HostPort(state.RegistryPort), state.HostPort(state.EFSAPIPort),
		},
		LogFile: o.Lab.LogFile(gatewayPart),
		NetNS:   o.Lab.NetNSPath(),
		Address: fmt.Sprintf("127.0.0.1:%d", s.APIServerPort),
		Digest:  digest + fmt.Sprint(s.APIServerPort, s.RegistryPort, s.EFSAPIPort),
	}
}

// startPlane starts the control plane and waits until it answers.
func (o *Orchestrator) startPlane(ctx context.Context, notes *step.Notes, plane controlplane.Plane) error {
	for _, spec := range []proc.Spec{plane.Etcd(), plane.APIServer()} {
		if err := o.ensure(ctx, spec); err != nil {
			return err
		}
	}
	c, err := client(o.Lab)
	if err != nil {
		return err
	}
	err = await(ctx, notes, partLimit, "the apiserver", func(ctx context.Context) error {
		if _, err := c.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
			return o.orEnded(err, controlplane.Etcd, controlplane.APIServer)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, spec := range []proc.Spec{plane.ControllerManager(), plane.Scheduler()} {
		if err := o.ensure(ctx, spec); err != nil {
			return err
		}
	}
	// No pod can be created in a namespace without a service account.
	return await(ctx, notes, partLimit, "the controller-manager", func(ctx context.Context) error {
		if _, err := c.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return o.orEnded(err, controlplane.ControllerManager)
		}
		return nil
	})
}

// registryPackage is Debian's build of the distribution registry.
const registryPackage = "docker-registry"

// registryConfig stores images on disk, so that they survive the end of the registry's process, and logs
// only warnings and errors.
const registryConfig = `version: 0.1
log: {level: warn, accesslog: {disabled: true}}
storage:
  filesystem: {rootdirectory: %q}
  delete: {enabled: true}
http: {addr: ":%d"}
`

// startRegistry starts the registry and pushes the lab's own images.
func (o *Orchestrator) startRegistry(ctx context.Context, notes *step.Notes, s state.Settings, a artifactSet) error {
	file := o.Lab.Path("registry.yaml")
	config := fmt.Sprintf(registryConfig, o.Lab.Path("registry"), state.RegistryPort)
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return fmt.Errorf("writing the registry's configuration: %w", err)
	}
	err := o.ensure(ctx, proc.Spec{
		Name:    registryPart,
		Args:    []string{a.toolsRoot + "/usr/bin/docker-registry", "serve", file},
		LogFile: o.Lab.LogFile(registryPart),
		NetNS:   o.Lab.NetNSPath(),
		Address: state.HostPort(state.RegistryPort),
	})
	if err != nil {
		return err
	}
	if err := o.awaitPort(ctx, notes, registryPart, state.HostPort(state.RegistryPort)); err != nil {
		return err
	}
	return o.pushOwnImages(ctx, s.RegistryPort, a)
}

// awaitPort waits until a part's address inside the lab accepts connections.
func (o *Orchestrator) awaitPort(ctx context.Context, notes *step.Notes, part, address string) error {
	dialer := net.Dialer{Timeout: time.Second}
	return await(ctx, notes, partLimit, part, func(ctx context.Context) error {
		err := network.Do(o.Lab, func() error {
			c, err := dialer.DialContext(ctx, "tcp", address)
			if err != nil {
				return err
			}
			return c.Close()
		})
		if err != nil {
			return o.orEnded(err, part)
		}
		return nil
	})
}

// The lab's own images.
const (
	pauseImage   = "lab/pause:1"
	toolboxImage = "lab/toolbox:1"
)

func (o *Orchestrator) pushOwnImages(ctx context.Context, port int, a artifactSet) error {
	pause, err := images.Build(images.Recipe{
		Files:      []images.File{{Source: a.pause, Target: "/pause"}},
		Entrypoint: []string{"/pause"},
	})
	if err != nil {
		return err
	}
	if _, err := images.Push(ctx, port, pauseImage, pause); err != nil {
		return err
	}
	toolbox, err := images.Build(images.Recipe{
		Files:   []images.File{{Source: a.toolboxRoot, Target: "/"}},
		Env:     []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Command: []string{"/bin/sh"},
	})
	if err != nil {
		return err
	}
	_, err = images.Push(ctx, port, toolboxImage, toolbox)
	return err
}
