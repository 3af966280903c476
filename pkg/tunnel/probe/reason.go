package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"os"
	"syscall"
)

// Reasons for failed probes, as in metrics and events.
const (
	ReasonTimeout     = "Timeout"     // no reply in time
	ReasonRefused     = "Refused"     // no process listens
	ReasonUnreachable = "Unreachable" // no route to the address
	ReasonClosed      = "Closed"      // the connection was closed or reset before the reply
	ReasonCertificate = "Certificate" // the server's certificate cannot be verified
	ReasonHandshake   = "Handshake"   // the server has no TLS, or no common version or cipher
	ReasonDenied      = "Denied"      // the NFS server denied the call
	ReasonProtocol    = "Protocol"    // the reply is not an NFSv4 server's
	ReasonHijacked    = "Hijacked"    // the node redirects the tunnel's port, see ErrHijacked
	ReasonOther       = "Other"
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

// remedies are what administrators do about failed probes.
var remedies = map[string]string{
	ReasonTimeout:     "check the security groups (TCP 2049) of the mount target and of the node, network ACLs, routes",
	ReasonRefused:     "check the address, and the mount target's state in AWS: nothing listens there",
	ReasonUnreachable: "check the routes of the node's subnet",
	ReasonCertificate: "remove a proxy in between; if the server has a certificate of its own, name its authority (EFS_CA_FILE, --ca-file of preflight)",
	ReasonHandshake:   "check the address and what is in between: the server has no TLS, or something breaks it",
	ReasonClosed:      "check what is between node and mount target: something closes the connection, or TLS is not served",
	ReasonDenied:      "check the policy of the file system",
	ReasonProtocol:    "check the address: the server is not one of NFSv4",
	ReasonHijacked:    "delete the pod with this hostPort, or the Service with this nodePort",
	ReasonOther:       "do what the message says",
}

// Remedy says what to do about a reason; "" for one that is unknown.
func Remedy(reason string) string { return remedies[reason] }
