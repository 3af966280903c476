package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"gnuthought.com/efs-stunnel/pkg/program/loop"
	"gnuthought.com/efs-stunnel/pkg/program/nfsnull"
)

const (
	probeInterval = 2 * time.Second
	probeTimeout  = 5 * time.Second
)

var errNotProbed = errors.New("the programs have not answered yet")

// readiness probes the server as its clients do: an NFS call through TLS.
type readiness struct {
	address string // of stunnel
	client  tls.Certificate

	mu   sync.Mutex
	leaf *x509.Certificate // guarded by mu; nil before the first certificate
	lack error             // guarded by mu; why there is none yet
	err  error             // guarded by mu; of the last probe
}

// run probes until the context ends.
func (r *readiness) run(ctx context.Context) {
	for xid := uint32(1); ctx.Err() == nil; xid++ {
		r.set(r.probe(ctx, xid))
		loop.Pause(ctx, probeInterval)
	}
}

func (r *readiness) set(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

// check returns the error of the last probe.
func (r *readiness) check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// serve sets the certificate that stunnel must serve with, or why there is none.
func (r *readiness) serve(leaf *x509.Certificate, lack error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaf, r.lack = leaf, lack
}

func (r *readiness) expected() (*x509.Certificate, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leaf, r.lack
}

func (r *readiness) probe(ctx context.Context, xid uint32) error {
	leaf, lack := r.expected()
	if leaf == nil {
		return lack
	}
	if err := checkTime(leaf, time.Now()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	dialer := tls.Dialer{Config: &tls.Config{
		Certificates:       []tls.Certificate{r.client},
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, //nolint:gosec // any other certificate than the expected one is refused below
		VerifyConnection: func(state tls.ConnectionState) error {
			if !bytes.Equal(state.PeerCertificates[0].Raw, leaf.Raw) {
				return errors.New("stunnel serves with another certificate than the present one")
			}
			return nil
		},
	}}
	conn, err := dialer.DialContext(ctx, "tcp", r.address)
	if err != nil {
		return fmt.Errorf("connecting to stunnel: %w", err)
	}
	defer conn.Close()
	return nfsnull.Call(ctx, conn, xid)
}

// dialable returns the address at which this process reaches a listener.
func dialable(listening net.Addr) string {
	tcp, ok := listening.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return listening.String()
	}
	return net.JoinHostPort(loopback(), strconv.Itoa(tcp.Port))
}
