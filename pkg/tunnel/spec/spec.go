// Package spec is what the agent tells the supervisor of a tunnel: where it listens, where it leads
// and what is verified. How stunnel is configured for that is the supervisor's alone.
//
// Every value comes from a ConfigMap that somebody may have edited, so each is held against a
// strict grammar: no value can add a line or an option to stunnel's configuration.
package spec

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
)

// Tunnel is one local port and what it leads to.
type Tunnel struct {
	// Name is the target's id, for an access point followed by "." and that one's id. It is
	// the name of the stunnel service and part of the file's name.
	Name    string           `json:"name"`
	Accept  netip.AddrPort   `json:"accept"`  // on a loopback address
	Connect []netip.AddrPort `json:"connect"` // in order of preference, at most MaxConnect
	// CheckHost is the DNS name that the server's certificate must have and that is sent as SNI.
	CheckHost string `json:"checkHost"`
	CAFile    string `json:"caFile"` // absolute path of the trusted roots, PEM
	// Cert and Key are absolute paths of the client certificate, PEM; "" for none.
	Cert string `json:"cert,omitempty"`
	Key  string `json:"key,omitempty"`
	// CertSum is the SHA-256 of what is in Cert, in hexadecimal: a renewed certificate makes
	// another specification, and so has stunnel read the file again.
	CertSum string `json:"certSum,omitempty"`
	// Restart counts the restarts asked for: when it changes, the process is restarted, so that
	// its connections begin anew; any other change is reloaded and keeps them.
	Restart int `json:"restart,omitempty"`
}

// MaxConnect bounds the addresses of one tunnel: EFS has one in each zone.
const MaxConnect = 32

// Encode gives the JSON of a specification. Equal tunnels give equal bytes. It returns an error
// that names the field whose value is not allowed.
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

// Decode reads what Encode wrote. It refuses fields that it does not know, as agent and supervisor
// are always of one version, and values that Encode refuses.
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

// Generation names the bytes of a specification: their SHA-256 in hexadecimal, "" for none. The
// supervisor's status says by it which one is in force.
func Generation(text []byte) string {
	if text == nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
