// Package cluster runs a real etcd, kube-apiserver and kube-controller-manager on the loopback,
// for tests. There is no kubelet and no scheduler: package kubelet simulates both.
//
// The kernel kills the programs when the test process ends. Only the temporary folder may be left.
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
	// startTimeout is long enough for a busy machine.
	startTimeout = 2 * time.Minute
	// startAttempts is for ports that another process takes between their choice and their use.
	startAttempts = 5
	pollInterval  = 50 * time.Millisecond
)

// Fast is a limit that the controller-manager does not reach. With its own default of 20 requests a second, hundreds
// of claims would wait for it and not for the manager under test.
const Fast = 2000

// Cluster is a running control plane.
type Cluster struct {
	programs    string // the folder of the Kubernetes programs and etcd
	qps         int    // of the controller-manager's requests
	folder      string
	ports       ports
	credentials credentials
	numbers     atomic.Int64
	// They are started in this order and stopped in the reverse one.
	etcd, apiServer, controllerManager *process // nil until started
}

// Start starts a control plane with the programs of a folder and waits until it serves. The caller
// must call Stop, unless there is an error. The controller-manager may make qps requests a second, and twice as
// many at once.
func Start(ctx context.Context, programs string, qps int) (*Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for attempt := 1; ; attempt++ {
		c, err := startOnce(ctx, programs, qps)
		if err == nil {
			return c, nil
		}
		err = fmt.Errorf("starting a control plane: %w\n%s", err, c.Logs(logTail))
		collided := c.portWasTaken()
		err = errors.Join(err, c.Stop())
		if !collided || attempt == startAttempts {
			return nil, err
		}
	}
}

// startOnce returns what it has started also with an error.
func startOnce(ctx context.Context, programs string, qps int) (*Cluster, error) {
	c := &Cluster{programs: programs, qps: qps}
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
	if err := c.waitForAPIServer(ctx); err != nil {
		return c, err
	}
	if c.controllerManager, err = startProcess(c.controllerManagerProgram()); err != nil {
		return c, err
	}
	return c, c.waitForControllers(ctx)
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

// Config returns the configuration of an administrator's client, without a rate limit.
func (c *Cluster) Config() *rest.Config { return c.credentials.config(c.server()) }

// APIServerTime returns the processor time that the apiserver has taken until now.
func (c *Cluster) APIServerTime() (time.Duration, error) { return c.apiServer.processorTime() }

// NextNumber returns another number to each caller, for unique names.
func (c *Cluster) NextNumber() int { return int(c.numbers.Add(1)) }

// StopControllers kills the controller-manager.
func (c *Cluster) StopControllers() {
	c.controllerManager.stop()
	c.controllerManager = nil
}

// SignalControllers sends a signal to the controller-manager, such as SIGSTOP.
func (c *Cluster) SignalControllers(signal os.Signal) error {
	return c.controllerManager.cmd.Process.Signal(signal)
}

// StartControllers starts the controller-manager again, and does not wait for it.
func (c *Cluster) StartControllers() (err error) {
	c.controllerManager, err = startProcess(c.controllerManagerProgram())
	return err
}

// Logs returns the last lines of every program.
func (c *Cluster) Logs(lines int) string {
	var text strings.Builder
	for _, p := range []*process{c.etcd, c.apiServer, c.controllerManager} {
		text.WriteString(p.tail(lines))
	}
	return text.String()
}

// logTail is the number of lines that usually show the cause.
const logTail = 20

func (c *Cluster) portWasTaken() bool {
	return c.etcd.couldNotListen() || c.apiServer.couldNotListen()
}

func (c *Cluster) waitForAPIServer(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return c.waitFor(ctx, "the apiserver", func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// waitFor polls until there is no error, unless a program has ended.
func (c *Cluster) waitFor(ctx context.Context, what string, check func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		for _, p := range []*process{c.etcd, c.apiServer, c.controllerManager} {
			if err := p.failure(); err != nil {
				return false, err
			}
		}
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", what, errors.Join(err, last))
	}
	return nil
}
