// Package tunnelspec defines the contract between agent and supervisor. The agent writes the
// specification of a tunnel: where it listens, which servers it connects to and what it verifies; package
// stunnelcfg renders it as stunnel's configuration. The supervisor writes the status. Reasons of failed
// probes are here, too.
//
// The values come from a ConfigMap that users can edit. A strict grammar keeps each value from
// adding a line or an option to stunnel's configuration.
package tunnelspec

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
)

// Tunnel is a local port and the servers behind it.
type Tunnel struct {
	// Name is the id of the target, for an access point followed by "." and the id of that. It is
	// the name of the stunnel service and part of the file name.
	Name    string           `json:"name"`
	Accept  netip.AddrPort   `json:"accept"`  // on a loopback address
	Connect []netip.AddrPort `json:"connect"` // in order of preference, at most MaxConnect
	// CheckHost is the DNS name that the server's certificate must have. It is sent as SNI, too.
	CheckHost string `json:"checkHost"`
	CAFile    string `json:"caFile"` // absolute path of the trusted roots, PEM
	// CASum is the SHA-256 of the file CAFile in hexadecimal, "" if the agent has never read it. It makes
	// a changed file change the specification, so that stunnel reads the file again.
	CASum string `json:"caSum,omitempty"`
	// Cert and Key are absolute paths of the client certificate, PEM; "" for none.
	Cert string `json:"cert,omitempty"`
	Key  string `json:"key,omitempty"`
	// CertSum is the SHA-256 of the file Cert in hexadecimal. It makes a renewed certificate change
	// the specification, so that stunnel reads the file again.
	CertSum string `json:"certSum,omitempty"`
	// Restart counts the requested restarts. A change restarts stunnel, which ends its connections;
	// every other change is a reload, which keeps them.
	Restart int `json:"restart,omitempty"`
}

// MaxConnect bounds the addresses of one tunnel. EFS has one in each zone.
const MaxConnect = 32

// Encode returns the JSON of a specification, equal bytes for equal tunnels, or an error that names
// the first invalid field.
func Encode(t Tunnel) ([]byte, error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("encoding a tunnel's specification: %w", err)
	}
	return append(text, '\n'), nil
}

// Decode parses the output of Encode. It returns an error for invalid values, and for unknown
// fields: agent and supervisor of a pod have the same version.
func Decode(text []byte) (Tunnel, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var t Tunnel
	if err := decoder.Decode(&t); err != nil {
		return Tunnel{}, fmt.Errorf("decoding a tunnel's specification: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Tunnel{}, errors.New("decoding a tunnel's specification: more than one value")
	}
	if err := t.Check(); err != nil {
		return Tunnel{}, err
	}
	return t, nil
}

// Generation returns the SHA-256 of an encoded specification in hexadecimal, "" for nil. The
// supervisor's status names with it the specification in force.
func Generation(text []byte) string {
	if text == nil {
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}
