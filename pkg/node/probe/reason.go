// Package probe checks whether NFS servers answer, through tunnels and directly. It sends NULL calls.
package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"os"
	"syscall"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/program/nfsnull"
)

// ErrHijacked is the error for a connection to a tunnel's local address whose other end is in another
// network namespace: a rule of the node redirects the port, as for a pod's hostPort or a Service's
// nodePort, and that pod receives the node's NFS traffic unencrypted.
var ErrHijacked = errors.New("the node redirects this port to something else, most likely to a pod with that hostPort or a Service with that nodePort")

// Reason classifies the error of a probe; "" for no error.
func Reason(err error) string {
	certificate := (*tls.CertificateVerificationError)(nil)
	switch {
	case err == nil:
		return ""
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return tunnelspec.ProbeTimeout
	case errors.As(err, &certificate):
		return tunnelspec.ProbeCertificate
	case errors.Is(err, syscall.ECONNREFUSED):
		return tunnelspec.ProbeRefused
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return tunnelspec.ProbeUnreachable
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.ErrClosedPipe),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return tunnelspec.ProbeClosed
	case errors.Is(err, nfsnull.ErrDenied):
		return tunnelspec.ProbeDenied
	case errors.Is(err, nfsnull.ErrProtocol):
		return tunnelspec.ProbeProtocol
	case errors.Is(err, ErrHijacked):
		return tunnelspec.ProbeHijacked
	case errors.Is(err, errHandshake):
		return tunnelspec.ProbeHandshake
	}
	return tunnelspec.ProbeOther
}
