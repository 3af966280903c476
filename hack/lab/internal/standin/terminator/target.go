// Package terminator is the part of a mount target that clients connect to. It terminates their TLS,
// has their certificates checked, and forwards their bytes to the right NFS server. It refuses
// clients, and fails on demand.
package terminator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"gnuthought.com/efs-stunnel/hack/lab/internal/oneof"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/mountauth"
)

// Mode is a mount target's treatment of open and new connections.
type Mode string

// The modes of a mount target.
const (
	OK     Mode = "ok"
	Refuse Mode = "refuse" // no listener; open connections are closed
	Reset  Mode = "reset"  // accepts and resets; open connections are reset
	Drop   Mode = "drop"   // black hole: packets are dropped, nothing is answered
	Silent Mode = "silent" // TCP and TLS work, but nothing is answered; open connections stall
)

// Modes lists all modes.
func Modes() []Mode { return []Mode{OK, Refuse, Reset, Drop, Silent} }

// Target is one mount target.
type Target struct {
	ID           string
	FileSystemID string
	Address      string // host:port, or several with commas
	Certificates *Certificates
	Verifier     mountauth.Verifier
	Route        Router
	Log          *slog.Logger

	transition sync.Mutex // held during a change of mode

	mu          sync.Mutex
	mode        Mode               // guarded by mu
	certificate CertificateKind    // guarded by mu
	delay       time.Duration      // guarded by mu; of what is sent in each direction
	plain       bool               // guarded by mu; clients without TLS are served, too
	partitions  Partitions         // guarded by mu
	assigned    int                // guarded by mu; connections that lead to a partition
	homes       map[string]int     // guarded by mu; the partition of each client
	wrong       int                // guarded by mu; connections that were closed for another one
	rate        int                // guarded by mu; of each connection to its client, bytes per second
	listeners   []*net.TCPListener // guarded by mu; of each address, none while closed
	live        map[*connection]struct{}
	gate        *gate // shut while nothing may be sent
	total       int
	refused     int
	refusals    map[mountauth.Cause]int // guarded by mu
	lastRefusal string
	group       sync.WaitGroup
}

// Router finds the address of a client's NFS server. It returns a *mountauth.Refusal when the client
// may not use it.
type Router func(fileSystemID string, id mountauth.Identity) (address string, err error)

// Start makes the mount target serve in mode ok with a valid certificate.
func (t *Target) Start(ctx context.Context) error {
	t.mode, t.certificate = OK, GoodCertificate
	t.live, t.gate, t.refusals = map[*connection]struct{}{}, newGate(), map[mountauth.Cause]int{}
	return t.listen(ctx)
}

// Stop closes the listener and all connections, and waits until their goroutines have ended.
func (t *Target) Stop() {
	t.transition.Lock()
	defer t.transition.Unlock()
	t.closeListeners()
	for _, c := range t.connections() {
		c.close()
	}
	t.gate.open() // goroutines that wait there find their connection closed
	t.group.Wait()
}

// SetCertificate changes the certificate that is presented to new connections.
func (t *Target) SetCertificate(kind CertificateKind) error {
	if err := oneof.Check("certificate", kind, CertificateKinds()); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.certificate = kind
	return nil
}

// SetDelay holds back all bytes of open and new connections for a time, in each direction: a round trip takes
// twice as long more. TCP's and TLS's own handshakes are not delayed.
func (t *Target) SetDelay(delay time.Duration) error {
	if delay < 0 {
		return fmt.Errorf("delay of mount target %s: %s is less than 0s", t.ID, delay)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.delay = delay
	return nil
}

func (t *Target) currentDelay() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.delay
}

// SetMode changes how open and new connections are treated.
func (t *Target) SetMode(ctx context.Context, mode Mode) error {
	if err := oneof.Check("mode", mode, Modes()); err != nil {
		return err
	}
	t.transition.Lock()
	defer t.transition.Unlock()
	t.mu.Lock()
	old := t.mode
	t.mode = mode
	t.mu.Unlock()
	if mode == old {
		return nil
	}
	if err := t.enter(ctx, mode); err != nil {
		return fmt.Errorf("switching mount target %s from %s to %s: %w", t.ID, old, mode, err)
	}
	t.Log.Info("mount target changed its mode", "mountTarget", t.ID, "fileSystem", t.FileSystemID, "mode", mode)
	return nil
}

// enter applies the mode to the listener and to open connections.
func (t *Target) enter(ctx context.Context, mode Mode) error {
	if mode == Drop || mode == Silent {
		t.gate.shut() // before the filters, so that nothing is sent after them
	}
	if mode == Refuse {
		t.closeListeners()
	} else if err := t.listen(ctx); err != nil {
		return err
	}
	if err := t.filter(mode == Drop); err != nil {
		return err
	}
	switch mode {
	case OK:
		t.gate.open()
	case Refuse, Reset:
		for _, c := range t.connections() {
			c.abort(mode == Reset)
		}
		t.gate.open()
	}
	return nil
}

// filter drops packets to the listeners and to all connections, or stops dropping them.
func (t *Target) filter(drop bool) error {
	t.mu.Lock()
	listeners := t.listeners
	t.mu.Unlock()
	var failures []error
	for _, listener := range listeners {
		failures = append(failures, setBlackHole(listener, drop))
	}
	for _, c := range t.connections() {
		// A connection that was closed meanwhile has nothing to filter.
		if err := setBlackHole(c.tcp, drop); err != nil && !errors.Is(err, net.ErrClosed) {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// listen opens the listeners unless they are open.
func (t *Target) listen(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.listeners) > 0 {
		return nil
	}
	var listeners []*net.TCPListener
	for address := range strings.SplitSeq(t.Address, ",") {
		listener, err := t.listenAt(ctx, address)
		if err != nil {
			closeAll(listeners)
			return err
		}
		listeners = append(listeners, listener)
	}
	t.listeners = listeners
	// Connections outlive the request that opened the listeners.
	ctx = context.WithoutCancel(ctx)
	for _, listener := range listeners {
		t.group.Go(func() { t.accept(ctx, listener) })
	}
	return nil
}

func (t *Target) listenAt(ctx context.Context, address string) (*net.TCPListener, error) {
	// Keepalive probes without an answer end in a reset, which a black hole never sends.
	config := net.ListenConfig{KeepAlive: -1}
	config.SetMultipathTCP(false) // its sockets take no packet filter
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening as mount target %s: %w", t.ID, err)
	}
	tcp, ok := listener.(*net.TCPListener)
	if !ok {
		return nil, fmt.Errorf("listening as mount target %s: not TCP", t.ID)
	}
	return tcp, nil
}

func (t *Target) closeListeners() {
	t.mu.Lock()
	defer t.mu.Unlock()
	closeAll(t.listeners)
	t.listeners = nil
}

func closeAll(listeners []*net.TCPListener) {
	for _, listener := range listeners {
		_ = listener.Close()
	}
}

const acceptPause = 50 * time.Millisecond

func (t *Target) accept(ctx context.Context, listener *net.TCPListener) {
	for {
		tcp, err := listener.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // for example, too many open files
			t.Log.Warn("accepting a connection failed", "mountTarget", t.ID, "err", err)
			time.Sleep(acceptPause)
			continue
		}
		t.handle(ctx, tcp)
	}
}

// handle starts to serve a new connection, or ends it if the mode requires that.
func (t *Target) handle(ctx context.Context, tcp *net.TCPConn) {
	c := newConnection(t, tcp)
	t.mu.Lock()
	mode, certificate := t.mode, t.certificate
	t.total++
	if mode == Refuse || mode == Reset {
		t.mu.Unlock()
		c.abort(mode == Reset)
		return
	}
	t.live[c] = struct{}{}
	if mode == Drop { // the connection was queued when the mode changed
		_ = setBlackHole(tcp, true)
	}
	t.mu.Unlock()
	t.group.Go(func() {
		defer t.remove(c)
		c.serve(ctx, certificate)
	})
}

func (t *Target) remove(c *connection) {
	c.close()
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.live, c)
}

func (t *Target) refuse(c *connection, reason error) {
	t.mu.Lock()
	t.refused++
	t.lastRefusal = reason.Error()
	if refusal, ok := errors.AsType[*mountauth.Refusal](reason); ok {
		t.refusals[refusal.Cause]++
	}
	t.mu.Unlock()
	t.Log.Warn("connection refused", "mountTarget", t.ID, "fileSystem", t.FileSystemID,
		"client", c.tcp.RemoteAddr().String(), "reason", reason.Error())
}

func (t *Target) connections() []*connection {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.live))
}
