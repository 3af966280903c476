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
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path"
	"regexp"
	"strings"
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
	// Lanes is the most connections of a client that the servers serve as one without telling partitions; 0 if
	// that is not known.
	Lanes int `json:"lanes,omitempty"`
}

// MaxLanes bounds the connections over which one of a client is spread. Amazon EFS serves as many.
const MaxLanes = 5

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

// Allowed values. None of these patterns accepts a space, a line break, a bracket, a quote or the
// beginning of a comment.
var (
	tunnelName = regexp.MustCompile(`^[a-z]([-0-9a-z]{0,41}[0-9a-z])?(\.fsap-[0-9a-z]{1,40})?$`)
	dnsLabel   = regexp.MustCompile(`^[0-9A-Za-z]([-0-9A-Za-z]{0,61}[0-9A-Za-z])?$`)
	sha256Sum  = regexp.MustCompile(`^[0-9a-f]{64}$`)
	filePath   = regexp.MustCompile(`^/[-+.,:=@_/0-9A-Za-z]+$`)
)

// maxPathBytes is the kernel's limit without the terminating zero.
const maxPathBytes = 4095

// CheckName returns an error if the name is not valid for a tunnel.
func CheckName(name string) error {
	if !tunnelName.MatchString(name) {
		return fmt.Errorf("name is %.80q: want the id of a target, or that, a dot and the id of an access point", name)
	}
	return nil
}

// Check returns an error that names the first invalid field.
func (t Tunnel) Check() error {
	err := cmp.Or(CheckName(t.Name), checkAccept(t.Accept), checkConnect(t.Connect), checkHostName(t.CheckHost), checkPath("CA file", t.CAFile))
	if err == nil && t.CASum != "" {
		err = checkSum("CA file", t.CASum)
	}
	if err == nil && t.Cert+t.Key+t.CertSum != "" {
		err = cmp.Or(checkPath("client certificate", t.Cert), checkSum("client certificate", t.CertSum), checkPath("client key", t.Key))
	}
	if err == nil && t.Restart < 0 {
		err = fmt.Errorf("restart serial is %d: want 0 or more", t.Restart)
	}
	if err == nil && (t.Lanes < 0 || t.Lanes > MaxLanes) {
		err = fmt.Errorf("lanes are %d: want 0 to %d", t.Lanes, MaxLanes)
	}
	return err
}

// checkAccept allows loopback addresses only: who reaches the port reaches the whole file system. Package
// sockets lists IPv4 sockets only.
func checkAccept(a netip.AddrPort) error {
	if a.Port() == 0 || !a.Addr().IsLoopback() || !a.Addr().Is4() {
		return fmt.Errorf("accept is %.80q: want an IPv4 loopback address and a port", a.String())
	}
	return nil
}

func checkConnect(addresses []netip.AddrPort) error {
	if len(addresses) == 0 || len(addresses) > MaxConnect {
		return fmt.Errorf("connect has %d addresses: want 1 to %d", len(addresses), MaxConnect)
	}
	for i, a := range addresses {
		address := a.Addr().Unmap()
		if a.Port() == 0 || !address.IsValid() || address.IsUnspecified() || address.IsMulticast() || address.Zone() != "" {
			return fmt.Errorf("connect %d is %.80q: want the address and port of one server", i+1, a.String())
		}
	}
	return nil
}

// checkHostName excludes IP addresses, which stunnel's checkHost does not support.
func checkHostName(name string) error {
	_, notAddress := netip.ParseAddr(name)
	valid := len(name) <= 253 && notAddress != nil
	for label := range strings.SplitSeq(name, ".") {
		valid = valid && dnsLabel.MatchString(label)
	}
	if !valid {
		return fmt.Errorf("host name to check is %.80q: want a DNS name", name)
	}
	return nil
}

func checkPath(field, name string) error {
	if len(name) > maxPathBytes || !filePath.MatchString(name) || path.Clean(name) != name {
		return fmt.Errorf("%s is %.80q: want an absolute path of letters, digits and -+.,:=@_ without double dots", field, name)
	}
	return nil
}

func checkSum(file, sum string) error {
	if !sha256Sum.MatchString(sum) {
		return fmt.Errorf("sum of the %s is %.80q: want a SHA-256 in hexadecimal", file, sum)
	}
	return nil
}
