package terminator

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/mountauth"
)

const (
	handshakeTimeout = 30 * time.Second
	dialTimeout      = 5 * time.Second
	// copyBuffer holds several of TLS's 16 KiB records from the NFS server.
	copyBuffer = 256 << 10
)

// connection is a client's connection.
type connection struct {
	target *Target
	tcp    *net.TCPConn
	since  time.Time

	// Both guarded by target.mu.
	identity    mountauth.Identity
	established bool

	once    sync.Once
	done    chan struct{} // closed with the connection
	mu      sync.Mutex
	backend *net.TCPConn // guarded by mu; nil until dialled
}

func newConnection(t *Target, tcp *net.TCPConn) *connection {
	return &connection{target: t, tcp: tcp, since: time.Now(), done: make(chan struct{})}
}

// close ends both sides. It may be called at any time, and more than once.
func (c *connection) close() {
	c.once.Do(func() {
		close(c.done)
		_ = c.tcp.Close()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.backend != nil {
			_ = c.backend.Close()
		}
	})
}

// abort ends the connection without the client's consent, by a reset if asked.
func (c *connection) abort(reset bool) {
	if reset {
		_ = c.tcp.SetLinger(0) // closing then sends RST instead of FIN
	}
	c.close()
}

// serve handles the connection to its end.
func (c *connection) serve(ctx context.Context, kind CertificateKind) {
	if !c.target.servesPlain() {
		c.serveTLS(ctx, c.tcp, kind)
	} else if client, isTLS := c.peek(); isTLS {
		c.serveTLS(ctx, client, kind)
	} else {
		c.servePlain(ctx, client)
	}
}

func (c *connection) serveTLS(ctx context.Context, client net.Conn, kind CertificateKind) {
	secure, err := c.handshake(ctx, client, kind)
	// While the gate is shut, the client must not see the connection closed either.
	c.target.gate.pass(c.done)
	if c.closed() {
		return
	}
	if err != nil {
		c.target.refuse(c, err)
		return
	}
	backend, err := c.admit(ctx, secure)
	if err != nil {
		c.target.refuse(c, err)
		if _, ok := errors.AsType[*mountauth.Refusal](err); ok {
			c.deny(secure)
		}
		return
	}
	greeted, err := c.greet(secure)
	if err != nil {
		c.target.refuse(c, err)
		return
	}
	c.forward(greeted, backend)
}

// forward copies both directions to their ends.
func (c *connection) forward(client, backend duplex) {
	var both sync.WaitGroup
	both.Go(func() { c.copy(backend, client, func(int) {}) })
	both.Go(func() {
		var free time.Time
		c.copy(client, backend, func(bytes int) { free = c.pace(free, bytes) })
	})
	both.Wait()
}

func (c *connection) handshake(ctx context.Context, client net.Conn, kind CertificateKind) (*tls.Conn, error) {
	config, err := c.target.Certificates.serverConfig(kind)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	secure := tls.Server(client, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	return secure, nil
}

// admit checks the client's certificate and connects to its NFS server. An error that wraps a
// *mountauth.Refusal is the client's fault.
func (c *connection) admit(ctx context.Context, secure *tls.Conn) (*net.TCPConn, error) {
	id, err := c.target.Verifier.Verify(c.target.FileSystemID, secure.ConnectionState().PeerCertificates)
	if err != nil {
		return nil, err
	}
	c.target.mu.Lock()
	c.identity = id
	c.target.mu.Unlock()
	return c.dial(ctx, id)
}

// dial connects to the client's NFS server.
func (c *connection) dial(ctx context.Context, id mountauth.Identity) (*net.TCPConn, error) {
	address, err := c.target.Route(c.target.FileSystemID, id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("connecting to the NFS server: %w", err)
	}
	backend, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, errors.New("connecting to the NFS server: not TCP")
	}
	c.mu.Lock()
	c.backend = backend
	c.mu.Unlock()
	if c.closed() {
		_ = backend.Close() // close was called before backend was set
	}
	c.target.mu.Lock()
	c.established = true
	c.target.mu.Unlock()
	return backend, nil
}

func (c *connection) closed() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// duplex is a connection of which one direction can be closed.
type duplex interface {
	io.ReadWriter
	CloseWrite() error
}

// parcel is the result of one read, and the time until which it is held back.
type parcel struct {
	bytes []byte
	err   error // that ended the reading
	due   time.Time
}

// maxHeld bounds the parcels of one direction that are held back, which are 16 KiB of TLS at most: 20 ms of
// 200 MB/s, which is more than emulated nodes send.
const maxHeld = 256

// copy forwards bytes in one direction, each after the mount target's delay, and the end of the stream. It calls
// pace with how many it is about to send. An error ends both directions.
func (c *connection) copy(to, from duplex, pace func(bytes int)) {
	held := make(chan parcel, maxHeld)
	var reading sync.WaitGroup
	defer reading.Wait()
	reading.Go(func() { c.receive(from, held) })
	for p := range held {
		c.hold(p.due)
		c.target.gate.pass(c.done)
		if len(p.bytes) > 0 {
			pace(len(p.bytes))
			if _, err := to.Write(p.bytes); err != nil {
				c.close()
				return
			}
		}
		if p.err != nil && (!errors.Is(p.err, io.EOF) || to.CloseWrite() != nil) {
			c.close()
		}
	}
}

// receive reads one direction to its end.
func (c *connection) receive(from duplex, held chan<- parcel) {
	defer close(held)
	buffer := make([]byte, copyBuffer)
	for {
		c.target.gate.pass(c.done) // what stalls receives nothing, either
		n, err := from.Read(buffer)
		p := parcel{bytes: bytes.Clone(buffer[:n]), err: err, due: time.Now().Add(c.target.currentDelay())}
		select {
		case held <- p:
		case <-c.done:
			return
		}
		if err != nil {
			return
		}
	}
}

// shortHold is up to which time a thread sleeps instead of a goroutine, whose timers may be a millisecond late.
const shortHold = 3 * time.Millisecond

// hold waits until a time, or until the connection is closed.
func (c *connection) hold(until time.Time) {
	wait := time.Until(until)
	if wait <= 0 {
		return
	}
	for ; wait > 0 && wait <= shortHold; wait = time.Until(until) { // again after a signal
		nap := syscall.NsecToTimespec(wait.Nanoseconds())
		_ = syscall.Nanosleep(&nap, nil)
	}
	if wait <= 0 {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.done:
	}
}
