package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// limits are those of a client of the apiserver.
type limits struct {
	QPS   int `json:"qps"`
	Burst int `json:"burst"`
}

// contender is a provisioner with its settings.
type contender struct {
	name        string
	limits      limits
	workers     int // for claims, and as many for volumes
	claims      int // in a burst of it
	provisioner string
	pod         time.Duration // start of the pod that a claim waits for
	filled      string        // what it logs when it could lead; "" if it logs nothing then
	begins      string        // what it logs when it begins to work
	environment []string      // variables that this program does not have
	command     func(bed *testbed, c contender, r replica) []string

	linger    time.Duration // for which the manager's workers wait for more operations
	warm      bool          // a worker waits before a burst
	finalizer bool          // the library adds its finalizer to volumes
	finishes  bool          // the manager binds claims where the cluster's binder is late
	policy    string        // file with a policy that annotates claims; "" for none
}

// replica is how one process of a contender runs.
type replica struct {
	address string // of its HTTP
	workers string // address where the manager listens for workers
	lease   lease  // zero for no election
}

type lease struct {
	Duration time.Duration `json:"-"`
	Deadline time.Duration `json:"-"`
	Retry    time.Duration `json:"-"`
}

func (l lease) String() string {
	return fmt.Sprintf("%g/%g/%g s", l.Duration.Seconds(), l.Deadline.Seconds(), l.Retry.Seconds())
}

// usualLease is the default of the manager, and of client-go's users.
func usualLease() lease {
	return lease{wellknown.DefaultLeaseDuration, wellknown.DefaultRenewDeadline, wellknown.DefaultRetryPeriod}
}

// Names of contenders.
const (
	managerName = "manager"
	libraryName = "library"
)

// ours is the manager with its defaults, apart from the limits.
func (b *bench) ours(l limits) contender {
	return contender{
		name: managerName, limits: l, workers: managerWorkers, claims: b.options.claims,
		provisioner: wellknown.DefaultProvisioner, pod: podTime,
		filled: "caches are filled", begins: "loops start", command: b.managerCommand,
		environment: []string{"POD_IP=" + localhost}, linger: wellknown.DefaultWorkerLinger,
	}
}

// oursWarm is the manager when a worker waits since an earlier claim, so that a burst waits for no pod, as
// it does for no library's.
func (b *bench) oursWarm(l limits) contender {
	c := b.ours(l)
	c.warm = true
	return c
}

// localhost is where workers reach the manager: their code runs in this process.
const localhost = "127.0.0.1"

// withoutWorkers is the manager whose Jobs end after their first batch, so that every claim waits
// for a pod.
func (b *bench) withoutWorkers(l limits) contender {
	c := b.ours(l)
	c.linger = 0
	return c
}

// managerWorkers is what pkg/manager/claims has.
const managerWorkers = 32

func (b *bench) managerCommand(bed *testbed, c contender, r replica) []string {
	_, workerPort, _ := net.SplitHostPort(r.workers) // of an address that freeAddress made
	command := []string{
		b.options.manager, "--kubeconfig=" + bed.kubeconfig, "--discovery=none",
		"--worker-image=registry.example.com/efs-stunnel:1.0", "--http-address=" + r.address, "--pprof",
		"--kube-api-qps=" + strconv.Itoa(c.limits.QPS), "--kube-api-burst=" + strconv.Itoa(c.limits.Burst),
		"--worker-port=" + workerPort, "--worker-linger=" + c.linger.String(),
		"--leader-elect=" + strconv.FormatBool(r.lease != lease{}),
	}
	if c.finishes {
		command = append(command, "--finish-binding")
	}
	if r.lease == (lease{}) {
		return command
	}
	return append(command,
		"--leader-elect-lease-duration="+r.lease.Duration.String(),
		"--leader-elect-renew-deadline="+r.lease.Deadline.String(),
		"--leader-elect-retry-period="+r.lease.Retry.String())
}

// peer is the field's library, with a provisioner that has next to nothing to do.
func (b *bench) peer(l limits, workers, claims int) contender {
	return contender{
		name: libraryName, limits: l, workers: workers, claims: claims,
		provisioner: peerProvisioner,
		begins:      "Started provisioner controller", command: peerCommand,
	}
}

// peerWithFinalizer is the library whose volumes have a finalizer, as ours have. Each deletion takes a
// write more then.
func (b *bench) peerWithFinalizer(l limits) contender {
	c := b.peer(l, managerWorkers, b.options.claims)
	c.finalizer = true
	return c
}

// program is a process of a contender.
type program struct {
	*child
	address string
	took    time.Duration // from its start until it began to work; zero before
}

// launch starts a process of a contender.
func (bed *testbed) launch(ctx context.Context, c contender, l lease) (*program, error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	workers, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	started, err := startChild(ctx, c.command(bed, c, replica{address, workers, l}), c.environment)
	if err != nil {
		return nil, err
	}
	return &program{child: started, address: address}, nil
}

// start launches a process and waits until it works.
func (bed *testbed) start(ctx context.Context, c contender, l lease) (*program, error) {
	p, err := bed.launch(ctx, c, l)
	if err != nil {
		return nil, err
	}
	if err := p.awaitWork(ctx, c); err != nil {
		return nil, errors.Join(err, p.end(syscall.SIGKILL))
	}
	return p, nil
}

func (p *program) awaitWork(ctx context.Context, c contender) error {
	ctx, cancel := context.WithTimeout(ctx, 10*stepTimeout) // one processor reads a large cluster
	defer cancel()
	at, err := p.awaitLine(ctx, c.begins)
	p.took = at.Sub(p.begun)
	return err
}

// with runs a process of a contender without an election while something is measured.
func (bed *testbed) with(ctx context.Context, c contender, measure func(*program) error) error {
	p, err := bed.start(ctx, c, lease{})
	if err != nil {
		return err
	}
	err = measure(p)
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, p.tail())
	}
	return errors.Join(err, p.end(os.Interrupt))
}

func freeAddress(ctx context.Context) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", localhost+":0")
	if err != nil {
		return "", fmt.Errorf("choosing a port: %w", err)
	}
	return listener.Addr().String(), listener.Close()
}
