// Package cluster runs a real etcd, kube-apiserver and kube-controller-manager on the loopback,
// for tests. There is no kubelet and no scheduler: package kubelet plays both.
//
// Nothing outlives the test process: the kernel kills the programs with it, and what is left in
// the temporary folder after that is in nobody's way.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// startTimeout is much for a machine that is busy with other things.
	startTimeout = 2 * time.Minute
	// startAttempts is for ports that somebody else takes between their choice and their use.
	startAttempts = 5
	pollInterval  = 50 * time.Millisecond
)

// Cluster is a running control plane.
type Cluster struct {
	programs    string // the folder of the Kubernetes programs and etcd
	folder      string
	ports       ports
	credentials credentials
	numbers     atomic.Int64
	// They are started in this order and stopped in the other.
	etcd, apiServer, controllerManager *process // nil until started
}

// Start starts a control plane with the programs of a folder and waits until it serves. Stop
// must be called, also when there is nothing to clean up but a temporary folder.
func Start(ctx context.Context, programs string) (*Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for attempt := 1; ; attempt++ {
		c, err := startOnce(ctx, programs)
		if err == nil {
			return c, nil
		}
		err = fmt.Errorf("starting a control plane: %w\n%s", err, c.Logs(logTail))
		collided := c.lostItsPort()
		err = errors.Join(err, c.Stop())
		if !collided || attempt == startAttempts {
			return nil, err
		}
	}
}

// startOnce gives what it has started also with an error.
func startOnce(ctx context.Context, programs string) (*Cluster, error) {
	c := &Cluster{programs: programs}
	if err := c.prepare(); err != nil {
		return c, err
	}
	var err error
	if c.etcd, err = startProcess(c.etcdProgram()); err != nil {
		return c, err
	}
	if c.apiServer, err = startProcess(c.apiServerProgram()); err != nil {
		return c, err
	}
	if err := c.awaitAPIServer(ctx); err != nil {
		return c, err
	}
	if c.controllerManager, err = startProcess(c.controllerManagerProgram()); err != nil {
		return c, err
	}
	return c, c.awaitControllers(ctx)
}

func (c *Cluster) prepare() (err error) {
	if c.folder, err = os.MkdirTemp("", "efs-stunnel-integration-"); err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	if c.ports, err = choosePorts(); err != nil {
		return err
	}
	c.credentials, err = newCredentials(c.folder, c.server())
	return err
}

// Stop kills the programs and removes their data.
func (c *Cluster) Stop() error {
	for _, p := range []*process{c.controllerManager, c.apiServer, c.etcd} {
		p.stop()
	}
	return os.RemoveAll(c.folder)
}

// Config is that of an administrator, without a limit on requests.
func (c *Cluster) Config() *rest.Config { return c.credentials.config(c.server()) }

// NextNumber is one that no other caller has had, for names that must not meet.
func (c *Cluster) NextNumber() int { return int(c.numbers.Add(1)) }

// RestartAPIServer kills the apiserver and starts it again on its port. It returns when it
// serves; watches and requests in between have failed.
func (c *Cluster) RestartAPIServer(ctx context.Context) error {
	c.apiServer.stop()
	var err error
	if c.apiServer, err = startProcess(c.apiServerProgram()); err != nil {
		return err
	}
	return c.awaitAPIServer(ctx)
}

// StopControllers kills the controller-manager. Until StartControllers, objects stay as they are
// written.
func (c *Cluster) StopControllers() {
	c.controllerManager.stop()
	c.controllerManager = nil
}

// StartControllers starts the controller-manager again, and does not wait for it.
func (c *Cluster) StartControllers() (err error) {
	c.controllerManager, err = startProcess(c.controllerManagerProgram())
	return err
}

// Logs are the last lines of every program.
func (c *Cluster) Logs(lines int) string {
	var text strings.Builder
	for _, p := range []*process{c.etcd, c.apiServer, c.controllerManager} {
		text.WriteString(p.tail(lines))
	}
	return text.String()
}

// logTail is the number of lines that usually have the reason.
const logTail = 20

func (c *Cluster) lostItsPort() bool {
	return c.etcd.couldNotListen() || c.apiServer.couldNotListen()
}

func (c *Cluster) awaitAPIServer(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return c.await(ctx, "the apiserver", func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// await asks until there is no error, unless a program has ended.
func (c *Cluster) await(ctx context.Context, what string, ask func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		for _, p := range []*process{c.etcd, c.apiServer, c.controllerManager} {
			if err := p.failure(); err != nil {
				return false, err
			}
		}
		last = ask(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", what, errors.Join(err, last))
	}
	return nil
}
