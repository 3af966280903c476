package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"os"
	"syscall"
)

// Reasons for which a probe fails, in the words of metrics and events.
const (
	ReasonTimeout     = "Timeout"     // nothing came back in time
	ReasonRefused     = "Refused"     // nobody listens
	ReasonUnreachable = "Unreachable" // there is no way to the address
	ReasonClosed      = "Closed"      // the connection was closed or reset instead of an answer
	ReasonCertificate = "Certificate" // the server could not prove who it is
	ReasonHandshake   = "Handshake"   // the server speaks no TLS, or none that fits
	ReasonDenied      = "Denied"      // an NFS server does not let this client in
	ReasonProtocol    = "Protocol"    // something else than an NFSv4 server answered
	ReasonHijacked    = "Hijacked"    // the node redirects the tunnel's port to something else
	ReasonOther       = "Other"
)

// Reason is the kind of a probe's error, "" for none.
func Reason(err error) string {
	certificate := (*tls.CertificateVerificationError)(nil)
	switch {
	case err == nil:
		return ""
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return ReasonTimeout
	case errors.As(err, &certificate):
		return ReasonCertificate
	case errors.Is(err, syscall.ECONNREFUSED):
		return ReasonRefused
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return ReasonUnreachable
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.ErrClosedPipe),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return ReasonClosed
	case errors.Is(err, ErrDenied):
		return ReasonDenied
	case errors.Is(err, ErrProtocol):
		return ReasonProtocol
	case errors.Is(err, ErrHijacked):
		return ReasonHijacked
	case errors.Is(err, errHandshake):
		return ReasonHandshake
	}
	return ReasonOther
}
