// Package server serves the folder of a disk over NFSv4 and TLS: it runs NFS-Ganesha and stunnel as its
// children, and has no right in the Kubernetes API.
//
// Ganesha listens on the loopback only. Its files are opened by handles, so a client can reach all of the
// file system that the folder is on; Run refuses a folder that shares it.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/program/httpserver"
	"gnuthought.com/efs-stunnel/pkg/program/loop"
	"gnuthought.com/efs-stunnel/pkg/program/process"
	"gnuthought.com/efs-stunnel/pkg/server/quota"
)

// Options configure Run.
type Options struct {
	Data         string // the folder of the mounted disk
	Certificates string // the folder of a Secret of the type kubernetes.io/tls
	Listen       string // host:port of stunnel
	GaneshaPort  int    // on the loopback

	GracePeriod        time.Duration // of clients' leases, and of the time in which they reclaim locks
	ClientCertificates bool          // required of clients
	Quotas             bool          // enforces the sizes of volumes
	SharedFileSystem   bool          // exports a folder that is not the root of a file system

	HTTP    httpserver.Options // without checks
	Metrics prometheus.Registerer
	Log     *slog.Logger
}

// What the image has, and what the pod of the component gives it.
const (
	runFolder   = "/run/efs-stunnel/" // of files that last as long as the process
	ganeshaPath = "/usr/bin/ganesha.nfsd"
	stunnelUser = 20490 // uid and gid, without a capability
)

const (
	// certificateInterval is the time between two reads of the certificates. The kubelet takes up to a minute
	// to update them.
	certificateInterval = 5 * time.Second
	waitInterval        = time.Second // the certificate exists, or another server ends
	reapInterval        = 5 * time.Second
	// Together these are less than the usual 30 s of a pod's termination grace period.
	stunnelGrace = 3 * time.Second
	ganeshaGrace = 20 * time.Second
)

type server struct {
	options          Options
	disk             disk
	metrics          *Metrics
	stunnel, ganesha *child
	readiness        *readiness
	probeAuthority   string   // PEM, which stunnel trusts beside the authorities of clients
	lock             *os.File // of the disk
	socket           *os.File // on which stunnel accepts connections
	served           pair     // with which stunnel serves; zero before the first
}

// Run serves until the context ends. Then stunnel stops, and Ganesha after it, so that what it has accepted
// is written. Run returns an error, and serves nothing, if the disk cannot be exported.
func Run(ctx context.Context, o Options) error {
	s, err := newServer(ctx, o)
	if err != nil {
		return err
	}
	defer s.socket.Close()
	o.HTTP.Log = o.Log
	o.HTTP.Ready = []httpserver.Check{{Name: "nfs", Func: s.readiness.check}, {Name: "disk", Func: func() error { return checkSpace(o.Data) }}}
	status, err := httpserver.Listen(ctx, o.HTTP)
	if err != nil {
		return err
	}
	// The thread that starts processes must outlive them, and so the context.
	starter := process.NewStarter()
	defer close(starter)
	s.stunnel.starter, s.ganesha.starter = starter, starter
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return status.Serve(ctx) })
	for _, loop := range []func(context.Context){s.reapOrphans, s.serve} {
		group.Go(func() error {
			loop(ctx)
			return nil
		})
	}
	return group.Wait()
}

// serve runs both programs, and enforces sizes, until the context ends. Nothing touches the files of a disk that another
// server has.
func (s *server) serve(ctx context.Context) {
	if !s.wait(ctx, s.options.Data, s.lockDisk) {
		return
	}
	defer s.lock.Close()
	ganeshaCtx, stopGanesha := context.WithCancel(context.WithoutCancel(ctx))
	var users sync.WaitGroup
	defer users.Wait() // of the lock
	defer stopGanesha()
	users.Go(func() { s.ganesha.run(ganeshaCtx) })
	users.Go(func() { s.limit(ctx) })
	if !s.wait(ctx, s.options.Certificates, s.firstCertificate) {
		return
	}
	s.options.Log.Info("serving", "path", s.disk.export, "address", s.options.Listen)
	var beside sync.WaitGroup
	defer beside.Wait() // they use what is closed at the end
	beside.Go(func() { s.readiness.run(ctx) })
	beside.Go(func() { s.followCertificates(ctx) })
	beside.Go(func() { s.refuseConnections(ctx) })
	s.stunnel.run(ctx)
}

func newServer(ctx context.Context, o Options) (*server, error) {
	d, err := openDisk(o)
	if err != nil {
		return nil, err
	}
	client, authority, err := newProbeCertificate(time.Now())
	if err != nil {
		return nil, err
	}
	s := &server{options: o, disk: d, metrics: NewMetrics(o.Metrics, o.Data), probeAuthority: authority}
	if err := s.writeFiles(); err != nil {
		return nil, fmt.Errorf("writing configuration: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("listening for clients: %w", err)
	}
	if s.socket, err = socketOf(listener); err != nil {
		return nil, err
	}
	s.readiness = &readiness{address: dialable(listener.Addr()), client: client}
	s.readiness.last.Store(&errNotProbed)
	s.stunnel = &child{
		command: s.stunnelCommand, parse: parseStunnel, grace: stunnelGrace,
		restarts: s.metrics.restarts.WithLabelValues(stunnelTitle), log: o.Log.With("program", stunnelTitle),
	}
	s.ganesha = &child{
		command: s.ganeshaCommand, parse: parseGanesha, isFatal: servesNothing, grace: ganeshaGrace,
		restarts: s.metrics.restarts.WithLabelValues(ganeshaTitle), log: o.Log.With("program", ganeshaTitle),
	}
	return s, nil
}

// writeFiles makes the folder of the process. stunnel, another user, reads files in it.
func (s *server) writeFiles() error {
	// An emptyDir is writable to all, and so to stunnel.
	if err := errors.Join(os.MkdirAll(runFolder, 0o755), os.Chmod(runFolder, 0o755)); err != nil {
		return err
	}
	return errors.Join(
		makeFolder(ticketsFolder, 0o700),
		writeFile(ganeshaFile, ganeshaConfig(s.disk, loopback(), s.options), 0),
		writeFile(stunnelFile, stunnelConfig(loopback(), s.options), stunnelUser),
	)
}

// socketOf returns a copy of a listener's socket that stunnel can inherit, and closes the listener. The copy
// is not polled by Go, which would make it block.
func socketOf(listener net.Listener) (*os.File, error) {
	defer listener.Close()
	tcp, ok := listener.(*net.TCPListener)
	if !ok {
		return nil, fmt.Errorf("listening for clients: socket of type %T", listener)
	}
	file, err := tcp.File()
	if err != nil {
		return nil, fmt.Errorf("listening for clients: %w", err)
	}
	defer file.Close()
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("listening for clients: %w", err)
	}
	socket := os.NewFile(uintptr(fd), listener.Addr().String())
	return socket, unix.SetNonblock(fd, true)
}

// refuseConnections makes the socket stop listening when the context ends, although stunnel has a copy.
func (s *server) refuseConnections(ctx context.Context) {
	<-ctx.Done()
	if err := unix.Shutdown(int(s.socket.Fd()), unix.SHUT_RD); err != nil {
		s.options.Log.Warn("closing the socket of clients failed", "err", err)
	}
}

// launch returns the command that has Launch start a program. It has no context: the child stops it by signals, after
// the context has ended.
func launch(title string, command ...string) *exec.Cmd {
	args := append([]string{LaunchCommand, title}, command...)
	return exec.Command("/proc/self/exe", args...) //nolint:noctx // see above
}

func (s *server) stunnelCommand() *exec.Cmd {
	cmd := launch(stunnelTitle, wellknown.StunnelPath, stunnelFile)
	cmd.ExtraFiles = []*os.File{s.socket} // becomes descriptor 3
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stunnelUser, Gid: stunnelUser}}
	return cmd
}

// ganeshaCommand has Ganesha use no bus that may be there.
func (s *server) ganeshaCommand() *exec.Cmd {
	cmd := launch(ganeshaTitle, ganeshaPath, "-F", "-L", "STDOUT", "-N", "EVENT", "-f", ganeshaFile, "-p", runFolder+"ganesha.pid")
	cmd.ExtraFiles = []*os.File{s.lock}
	cmd.Env = append(os.Environ(), "DBUS_SYSTEM_BUS_ADDRESS=unix:path="+runFolder+"no-bus")
	return cmd
}

// limit enforces the sizes of volumes until the context ends. A disk that cannot is served all the same.
func (s *server) limit(ctx context.Context) {
	if !s.options.Quotas {
		return
	}
	log := s.options.Log
	limiter, err := quota.New(quota.Options{Export: s.disk.export, Failing: s.metrics.quotasFailing, Limited: s.metrics.limited, Log: log})
	if err != nil {
		s.metrics.quotasFailing.Set(1)
		log.Warn("the sizes of volumes are not enforced", "path", s.options.Data, "err", err)
		return
	}
	log.Info("the sizes of volumes are enforced", "path", s.options.Data)
	limiter.Run(ctx)
}

// wait tries what the server needs of a path until that succeeds, which it reports, or the context ends.
func (s *server) wait(ctx context.Context, path string, try func() error) bool {
	var last loop.LastError
	for {
		err := try()
		if err == nil {
			return true
		}
		s.readiness.last.Store(&err)
		if last.IsNew(err) {
			s.options.Log.Warn("not serving yet", "path", path, "err", err)
		}
		if !loop.Pause(ctx, waitInterval) {
			return false
		}
	}
}

// lockDisk locks the disk for this server and the Ganesha that inherits the lock. Kubernetes may start a pod while the
// deleted one of the same name still runs, and locks of clients would have two holders.
func (s *server) lockDisk() (err error) {
	s.lock, err = lockFolder(s.disk.recovery)
	return err
}

func (s *server) firstCertificate() error {
	if _, err := s.updateCertificate(time.Now()); err != nil {
		return fmt.Errorf("there is no usable certificate of the server yet: %w", err)
	}
	return nil
}

// followCertificates has stunnel serve with new certificates. It keeps open connections.
func (s *server) followCertificates(ctx context.Context) {
	var last loop.LastError
	for loop.Pause(ctx, certificateInterval) {
		changed, err := s.updateCertificate(time.Now())
		switch isNew := last.IsNew(err); {
		case err == nil && changed:
			s.stunnel.signal(syscall.SIGHUP)
			s.options.Log.Info("stunnel takes a new certificate")
		case isNew:
			s.options.Log.Error("the new certificate is unusable; stunnel keeps the one before", "path", s.options.Certificates, "err", err)
		}
	}
}

// updateCertificate copies the certificates for stunnel if they have changed.
func (s *server) updateCertificate(now time.Time) (changed bool, err error) {
	p, err := readPair(s.options.Certificates, s.options.ClientCertificates, now)
	if err != nil || p.text == s.served.text && p.clients == s.served.clients {
		return false, err
	}
	err = errors.Join(
		writeFile(pairFile, p.text, stunnelUser),
		writeFile(clientsFile, p.clients+"\n"+s.probeAuthority, stunnelUser),
	)
	if err != nil {
		return false, fmt.Errorf("copying the certificate: %w", err)
	}
	s.served = p
	s.readiness.expected.Store(p.leaf)
	s.metrics.certificateEnd.Set(float64(p.leaf.NotAfter.Unix()))
	return true, nil
}

// reapOrphans reaps the zombies that the first process of a container adopts.
func (s *server) reapOrphans(ctx context.Context) {
	for os.Getpid() == 1 && loop.Pause(ctx, reapInterval) {
		process.ReapOrphans(func(pid int) bool { return s.stunnel.isRunning(pid) || s.ganesha.isRunning(pid) })
	}
}
