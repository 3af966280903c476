// Package confdir reads and writes the directory that the agent and the supervisor of a node share.
// The agent writes one specification for each tunnel, the client certificates with their key, and
// the state that it needs after a restart. The supervisor writes its status and stunnel's
// configuration files. The names of all files begin with one prefix.
//
// Files are replaced by a rename: a reader sees the complete old or the complete new content, even
// when the writer crashes.
package confdir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gnuthought.com/efs-stunnel/pkg/tunnel/spec"
)

// Names of files, after the prefix. stunnel's configuration files have the prefix and a dot.
const (
	suffixTable  = "-table.yaml"
	suffixState  = "-agent.json"
	suffixStatus = "-status.json"
	suffixSocket = "-agent.sock"
	suffixStore  = "-sockets.sock"
	suffixKey    = "-client.key"
	// The name of the tunnel is between these.
	certificatePrefix, certificateSuffix = "-client.", ".pem"
	specPrefix, specSuffix               = "-tunnel.", ".json"
)

// Dir is an open directory. The zero Dir is invalid.
type Dir struct{ prefix string }

// Open returns an error if the directory of the prefix does not exist. The last part of the prefix
// begins the names of the files.
func Open(prefix string) (Dir, error) {
	absolute, err := filepath.Abs(prefix)
	if err == nil {
		_, err = os.Stat(filepath.Dir(absolute) + "/") // an error, too, if that is not a directory
	}
	if err != nil {
		return Dir{}, fmt.Errorf("opening the configuration directory: %w", err)
	}
	return Dir{absolute}, nil
}

// CheckPrefix returns an error if the prefix is invalid for Open.
func CheckPrefix(prefix string) error {
	if !filepath.IsAbs(prefix) || strings.HasSuffix(prefix, "/") {
		return errors.New("want an absolute path that ends in the beginning of a file name")
	}
	return nil
}

// Prefix returns the prefix as an absolute path.
func (d Dir) Prefix() string { return d.prefix }

// Socket returns the path of the unix socket where the agent answers the probes of the kubelet.
func (d Dir) Socket() string { return d.prefix + suffixSocket }

// StoreSocket returns the path of the unix socket where the agent stores the supervisor's sockets
// (package fdstore).
func (d Dir) StoreSocket() string { return d.prefix + suffixStore }

// Names lists the tunnels that have a specification, sorted.
func (d Dir) Names() ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(d.prefix))
	if err != nil {
		return nil, fmt.Errorf("listing specifications: %w", err)
	}
	var names []string
	for _, entry := range entries {
		if name := d.TunnelOf(entry.Name()); name != "" && entry.Type().IsRegular() {
			names = append(names, name)
		}
	}
	return names, nil
}

// TunnelOf returns the tunnel whose specification a file is, "" for any other file.
func (d Dir) TunnelOf(file string) string {
	name, ok := strings.CutPrefix(filepath.Base(file), filepath.Base(d.prefix)+specPrefix)
	name, isSpec := strings.CutSuffix(name, specSuffix)
	if !ok || !isSpec || spec.CheckName(name) != nil {
		return ""
	}
	return name
}

// file is a file of the supervisor or the agent, which run as one user: no other user reads it.
func (d Dir) file(suffix string) file { return file{path: d.prefix + suffix, mode: 0o600} }

// tunnelFile returns a file whose name contains that of a tunnel, if that is valid.
func (d Dir) tunnelFile(prefix, name, suffix string) file {
	f := d.file(prefix + name + suffix)
	f.err = spec.CheckName(name)
	return f
}

func (d Dir) specFile(name string) file { return d.tunnelFile(specPrefix, name, specSuffix) }

// Write writes a tunnel's specification. It does not write equal bytes again.
func (d Dir) Write(name string, text []byte) (changed bool, err error) {
	f := d.specFile(name)
	if f.hasContent(text) {
		return false, nil
	}
	err = f.write(text)
	return err == nil, err
}

// Read reads a tunnel's specification, nil if there is none.
func (d Dir) Read(name string) ([]byte, error) { return d.specFile(name).read() }

// Remove removes a tunnel's specification and client certificate, if there are any.
func (d Dir) Remove(name string) error {
	if err := d.specFile(name).remove(); err != nil {
		return err
	}
	return d.RemoveCertificate(name)
}

func (d Dir) certificateFile(name string) file {
	return d.tunnelFile(certificatePrefix, name, certificateSuffix)
}

// CertificateFile returns the path of a tunnel's client certificate.
func (d Dir) CertificateFile(name string) string { return d.certificateFile(name).path }

// Certificate reads a tunnel's client certificate in PEM, nil if there is none.
func (d Dir) Certificate(name string) ([]byte, error) { return d.certificateFile(name).read() }

// WriteCertificate writes a tunnel's client certificate. It does not write equal bytes again.
func (d Dir) WriteCertificate(name string, text []byte) error {
	return d.certificateFile(name).write(text)
}

// RemoveCertificate removes a tunnel's client certificate, if there is one.
func (d Dir) RemoveCertificate(name string) error { return d.certificateFile(name).remove() }

func (d Dir) configFile(name string) file { return d.tunnelFile(".", name, "") }

// ConfigFile returns the path of stunnel's configuration of a tunnel.
func (d Dir) ConfigFile(name string) string { return d.configFile(name).path }

// WriteConfig writes stunnel's configuration of a tunnel. It does not write equal bytes again, so
// that stunnel can restart on a full disk.
func (d Dir) WriteConfig(name string, text []byte) error { return d.configFile(name).write(text) }

// RemoveConfig removes stunnel's configuration of a tunnel, if there is one.
func (d Dir) RemoveConfig(name string) error { return d.configFile(name).remove() }

// keyFile is never changed in place, only replaced.
func (d Dir) keyFile() file { return file{path: d.prefix + suffixKey, mode: 0o400} }

// KeyFile returns the path of the private key of all client certificates.
func (d Dir) KeyFile() string { return d.keyFile().path }

// Key reads the private key in PEM, nil if there is none.
func (d Dir) Key() ([]byte, error) { return d.keyFile().read() }

// WriteKey writes the private key, readable for its owner only. It does not write equal bytes again.
func (d Dir) WriteKey(text []byte) error { return d.keyFile().write(text) }

// Status reads the supervisor's status. The error is fs.ErrNotExist while no supervisor runs.
func (d Dir) Status() ([]byte, error) { return os.ReadFile(d.file(suffixStatus).path) }

// WriteStatus writes the supervisor's status.
func (d Dir) WriteStatus(text []byte) error { return d.file(suffixStatus).write(text) }

// RemoveStatus removes the supervisor's status, if there is one.
func (d Dir) RemoveStatus() error { return d.file(suffixStatus).remove() }

// Table reads the last valid table of targets, nil if there is none.
func (d Dir) Table() ([]byte, error) { return d.file(suffixTable).read() }

// WriteTable writes the last valid table of targets.
func (d Dir) WriteTable(text []byte) error { return d.file(suffixTable).write(text) }

// State reads the agent's state, nil if there is none.
func (d Dir) State() ([]byte, error) { return d.file(suffixState).read() }

// WriteState writes the agent's state.
func (d Dir) WriteState(text []byte) error { return d.file(suffixState).write(text) }
