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
	"sync/atomic"
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

	expected atomic.Pointer[x509.Certificate] // with which stunnel must serve
	last     atomic.Pointer[error]            // of the last probe, and before the first why there is none
}

// run probes, once a certificate is expected, until the context ends.
func (r *readiness) run(ctx context.Context) {
	for xid := uint32(1); ctx.Err() == nil; xid++ {
		err := r.probe(ctx, xid)
		r.last.Store(&err)
		loop.Pause(ctx, probeInterval)
	}
}

func (r *readiness) check() error { return *r.last.Load() }

func (r *readiness) probe(ctx context.Context, xid uint32) error {
	want := r.expected.Load()
	if err := checkTime(want, time.Now()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	dialer := tls.Dialer{Config: &tls.Config{
		Certificates:       []tls.Certificate{r.client},
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, //nolint:gosec // any other certificate than the expected one is refused below
		VerifyConnection: func(state tls.ConnectionState) error {
			if !bytes.Equal(state.PeerCertificates[0].Raw, want.Raw) {
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
