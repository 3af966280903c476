// Package terminator is the part of a mount target that clients see: it ends
// their TLS, has their certificates checked, and passes their bytes on to the
// right NFS server, or refuses them, or misbehaves when told to.
package terminator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/mountauth"
)

// Mode is how a mount target treats connections, old and new.
type Mode string

// The modes of a mount target.
const (
	OK     Mode = "ok"
	Refuse Mode = "refuse" // no listener; live connections are closed
	Reset  Mode = "reset"  // accepts and resets; live connections are reset
	Drop   Mode = "drop"   // black hole: packets vanish, nothing is answered
	Silent Mode = "silent" // TCP and TLS work, then nothing comes; live connections stall
)

// ErrInvalid is wrapped by refusals of modes and certificates that do not exist.
var ErrInvalid = errors.New("invalid")

// Modes lists all modes.
func Modes() []Mode { return []Mode{OK, Refuse, Reset, Drop, Silent} }

// Target is one mount target.
type Target struct {
	ID           string
	FileSystemID string
	Address      string // host:port
	Certificates *Certificates
	Verifier     mountauth.Verifier
	Route        Router
	Log          *slog.Logger

	// transition is held for the whole of a change of mode: one at a time.
	transition sync.Mutex

	mu          sync.Mutex
	mode        Mode             // guarded by mu
	certificate CertificateKind  // guarded by mu
	listener    *net.TCPListener // guarded by mu; nil while closed
	live        map[*connection]struct{}
	gate        *gate // closed while nothing may pass
	total       int
	refused     int
	refusals    map[mountauth.Cause]int // guarded by mu
	lastRefusal string
	group       sync.WaitGroup
}

// Router finds the NFS server for a client, or says why there is none: with a
// *mountauth.Refusal when the client may not have it.
type Router func(fileSystemID string, id mountauth.Identity) (address string, err error)

// Start makes the mount target serve in mode ok with a good certificate.
func (t *Target) Start(ctx context.Context) error {
	t.mode, t.certificate = OK, GoodCertificate
	t.live, t.gate, t.refusals = map[*connection]struct{}{}, newGate(), map[mountauth.Cause]int{}
	return t.listen(ctx)
}

// Stop closes the listener and all connections, and waits until they are gone.
func (t *Target) Stop() {
	t.transition.Lock()
	defer t.transition.Unlock()
	t.closeListener()
	for _, c := range t.connections() {
		c.close()
	}
	t.gate.open() // what waits there finds its connection closed
	t.group.Wait()
}

// SetCertificate changes what new connections are shown.
func (t *Target) SetCertificate(kind CertificateKind) error {
	if !slices.Contains(CertificateKinds(), kind) {
		return fmt.Errorf("certificate %q: want one of %s: %w", kind, join(CertificateKinds()), ErrInvalid)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.certificate = kind
	return nil
}

// SetMode changes how old and new connections are treated.
func (t *Target) SetMode(ctx context.Context, mode Mode) error {
	if !slices.Contains(Modes(), mode) {
		return fmt.Errorf("mode %q: want one of %s: %w", mode, join(Modes()), ErrInvalid)
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

// enter makes the mode true for the listener and for what is connected.
func (t *Target) enter(ctx context.Context, mode Mode) error {
	if mode == Drop || mode == Silent {
		t.gate.shut() // before the filters: nothing may be sent any more
	}
	if mode == Refuse {
		t.closeListener()
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
			c.cut(mode == Reset)
		}
		t.gate.open()
	}
	return nil
}

// filter makes packets to the listener and to all connections vanish, or lets
// them through again.
func (t *Target) filter(vanish bool) error {
	t.mu.Lock()
	listener := t.listener
	t.mu.Unlock()
	var failures []error
	if listener != nil {
		failures = append(failures, setBlackHole(listener, vanish))
	}
	for _, c := range t.connections() {
		// A connection that ended meanwhile has nothing to filter.
		if err := setBlackHole(c.tcp, vanish); err != nil && !errors.Is(err, net.ErrClosed) {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// listen opens the listener unless it is open.
func (t *Target) listen(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.listener != nil {
		return nil
	}
	// A probe that finds nobody ends in a reset, which a black hole never sends.
	config := net.ListenConfig{KeepAlive: -1}
	config.SetMultipathTCP(false) // its sockets take no packet filter
	listener, err := config.Listen(ctx, "tcp4", t.Address)
	if err != nil {
		return fmt.Errorf("listening as mount target %s: %w", t.ID, err)
	}
	tcp, ok := listener.(*net.TCPListener)
	if !ok {
		return fmt.Errorf("listening as mount target %s: not TCP", t.ID)
	}
	t.listener = tcp
	// Connections outlive the request that opened the listener.
	ctx = context.WithoutCancel(ctx)
	t.group.Go(func() { t.accept(ctx, tcp) })
	return nil
}

func (t *Target) closeListener() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.listener != nil {
		_ = t.listener.Close()
		t.listener = nil
	}
}

const acceptPause = 50 * time.Millisecond

func (t *Target) accept(ctx context.Context, listener *net.TCPListener) {
	for {
		tcp, err := listener.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, say
			t.Log.Warn("accepting a connection", "mountTarget", t.ID, "err", err)
			time.Sleep(acceptPause)
			continue
		}
		t.welcome(ctx, tcp)
	}
}

// welcome starts serving a new connection as the mode demands.
func (t *Target) welcome(ctx context.Context, tcp *net.TCPConn) {
	c := newConnection(t, tcp)
	t.mu.Lock()
	mode, certificate := t.mode, t.certificate
	t.total++
	if mode == Refuse || mode == Reset {
		t.mu.Unlock()
		c.cut(mode == Reset)
		return
	}
	t.live[c] = struct{}{}
	if mode == Drop { // was in the queue when the mode changed
		_ = setBlackHole(tcp, true)
	}
	t.mu.Unlock()
	t.group.Go(func() {
		defer t.forget(c)
		c.serve(ctx, certificate)
	})
}

func (t *Target) forget(c *connection) {
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
	t.Log.Warn("refused a connection", "mountTarget", t.ID, "fileSystem", t.FileSystemID,
		"client", c.tcp.RemoteAddr().String(), "reason", reason.Error())
}

func (t *Target) connections() []*connection {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]*connection, 0, len(t.live))
	for c := range t.live {
		list = append(list, c)
	}
	return list
}

func join[S ~string](list []S) string {
	names := make([]string, len(list))
	for i, name := range list {
		names[i] = string(name)
	}
	return strings.Join(names, ", ")
}
