// Package confdir reads and writes the directory that the agent and the supervisor of a node share.
// The agent writes one specification for each tunnel, the client certificates with their key, and
// the state that it needs after a restart. The supervisor writes its status and stunnel's
// configuration files. The names of all files begin with one prefix.
//
// Files are replaced by a rename: a reader sees the complete old or the complete new content, even
// when the writer crashes.
package confdir

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
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

const (
	// fileMode: only agent and supervisor, which run as one user, read the files.
	fileMode = 0o600
	// keyMode: a key is never changed in place, only replaced.
	keyMode = 0o400
)

// Dir is an open directory. The zero Dir is invalid.
type Dir struct{ prefix string }

// Open returns an error if the directory of the prefix does not exist. The last part of the prefix
// begins the names of the files.
func Open(prefix string) (Dir, error) {
	absolute, err := filepath.Abs(prefix)
	if err != nil {
		return Dir{}, fmt.Errorf("opening the configuration directory: %w", err)
	}
	info, err := os.Stat(filepath.Dir(absolute))
	if err != nil {
		return Dir{}, fmt.Errorf("opening the configuration directory: %w", err)
	}
	if !info.IsDir() {
		return Dir{}, fmt.Errorf("opening the configuration directory: %s is not a directory", filepath.Dir(absolute))
	}
	return Dir{absolute}, nil
}

// Prefix returns the prefix as an absolute path.
func (d Dir) Prefix() string { return d.prefix }

// Socket returns the path of the unix socket where the agent answers the probes of the kubelet.
func (d Dir) Socket() string { return d.prefix + suffixSocket }

// CheckPrefix returns an error if the prefix is invalid for Open.
func CheckPrefix(prefix string) error {
	if !filepath.IsAbs(prefix) || strings.HasSuffix(prefix, "/") {
		return errors.New("want an absolute path that ends in the beginning of a file name")
	}
	return nil
}

// StoreSocket returns the path of the unix socket where the agent stores the supervisor's sockets
// (package fdstore).
func (d Dir) StoreSocket() string { return d.prefix + suffixStore }

// StatusFile returns the path of the supervisor's status.
func (d Dir) StatusFile() string { return d.prefix + suffixStatus }

// Names lists the tunnels that have a specification, sorted.
func (d Dir) Names() ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(d.prefix))
	if err != nil {
		return nil, fmt.Errorf("listing tunnels' files: %w", err)
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

func (d Dir) specFile(name string) string { return d.prefix + specPrefix + name + specSuffix }

// Write writes a tunnel's specification. It does not write equal bytes again.
func (d Dir) Write(name string, text []byte) (changed bool, err error) {
	if err := spec.CheckName(name); err != nil {
		return false, fmt.Errorf("writing a tunnel's specification: %w", err)
	}
	return replaceFile(d.specFile(name), text, fileMode)
}

// Read reads a tunnel's specification, nil if there is none.
func (d Dir) Read(name string) ([]byte, error) {
	if err := spec.CheckName(name); err != nil {
		return nil, fmt.Errorf("reading a tunnel's specification: %w", err)
	}
	return readFile(d.specFile(name))
}

// Remove removes a tunnel's specification and client certificate, if there are any.
func (d Dir) Remove(name string) error {
	if err := removeFile(name, d.specFile(name)); err != nil {
		return err
	}
	return d.RemoveCertificate(name)
}

// ConfigFile returns the path of stunnel's configuration of a tunnel.
func (d Dir) ConfigFile(name string) string { return d.prefix + "." + name }

// WriteConfig writes stunnel's configuration of a tunnel. It does not write equal bytes again, so
// that stunnel can restart on a full disk.
func (d Dir) WriteConfig(name string, text []byte) error {
	if err := spec.CheckName(name); err != nil {
		return fmt.Errorf("writing stunnel's configuration: %w", err)
	}
	_, err := replaceFile(d.ConfigFile(name), text, fileMode)
	return err
}

// RemoveConfig removes stunnel's configuration of a tunnel, if there is one.
func (d Dir) RemoveConfig(name string) error { return removeFile(name, d.ConfigFile(name)) }

// Status reads the supervisor's status. The error is fs.ErrNotExist while no supervisor runs.
func (d Dir) Status() ([]byte, error) { return os.ReadFile(d.StatusFile()) }

// WriteStatus writes the supervisor's status.
func (d Dir) WriteStatus(text []byte) error {
	_, err := replaceFile(d.StatusFile(), text, fileMode)
	return err
}

// RemoveStatus removes the supervisor's status, if there is one.
func (d Dir) RemoveStatus() error {
	if err := os.Remove(d.StatusFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the status: %w", err)
	}
	return nil
}

// Table reads the last valid table of targets, nil if there is none.
func (d Dir) Table() ([]byte, error) { return readFile(d.prefix + suffixTable) }

// WriteTable writes the last valid table of targets.
func (d Dir) WriteTable(text []byte) error {
	_, err := replaceFile(d.prefix+suffixTable, text, fileMode)
	return err
}

// State reads the agent's state, nil if there is none.
func (d Dir) State() ([]byte, error) { return readFile(d.prefix + suffixState) }

// WriteState writes the agent's state.
func (d Dir) WriteState(text []byte) error {
	_, err := replaceFile(d.prefix+suffixState, text, fileMode)
	return err
}

func readFile(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading a file of the configuration directory: %w", err)
	}
	return text, nil
}

func removeFile(name, path string) error {
	if err := spec.CheckName(name); err != nil {
		return fmt.Errorf("removing a tunnel's file: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a tunnel's file: %w", err)
	}
	return nil
}

// replaceFile replaces a file unless it has the content already.
func replaceFile(path string, content []byte, mode fs.FileMode) (changed bool, err error) {
	old, err := os.ReadFile(path)
	if err == nil && bytes.Equal(old, content) {
		return false, nil
	}
	// The leading dot keeps TunnelOf from matching the file. With a constant name, crashes leave one
	// temporary file at most.
	fresh := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("writing a file: %w", err)
	}
	if err := createFile(fresh, content, mode); err != nil {
		return false, fmt.Errorf("writing a file: %w", err)
	}
	if err := os.Rename(fresh, path); err != nil {
		return false, fmt.Errorf("writing a file: %w", err)
	}
	return true, nil
}

// createFile does not follow symbolic links.
func createFile(path string, content []byte, mode fs.FileMode) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Close())
}
