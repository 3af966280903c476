// Package confdir is the folder that agent and supervisor of a node share. The agent puts there what
// tunnels are to be, one file for each; the supervisor, how they are, and stunnel's configuration
// files, which begin with the prefix that the folder is opened with. Beside them lies what the agent
// must know after a restart, and what stunnel reads besides: the client certificates of tunnels,
// and the key of all of them.
//
// Every file is put in place by a rename, so that whoever reads it sees all of it, and whoever
// dies at any line leaves the old or the new one.
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

// Names of files. What begins with the prefix and a dot is stunnel's configuration.
const (
	suffixTable  = "-table.yaml"
	suffixMemory = "-agent.json"
	suffixStatus = "-status.json"
	suffixSocket = "-agent.sock"
	suffixStore  = "-sockets.sock"
	suffixKey    = "-client.key"
	// These have the tunnel's name between.
	beforeTunnel, afterTunnel = "-client.", ".pem"
	beforeSpec, afterSpec     = "-tunnel.", ".json"
)

const (
	// fileMode: nobody else has to read the files, which name private keys.
	fileMode = 0o600
	// keyMode: nobody writes a key, which is replaced if it must be.
	keyMode = 0o400
)

// Dir is the folder. The zero Dir is of no use.
type Dir struct{ prefix string }

// Open checks that the folder is there. The prefix is a path whose last part begins the files'
// names.
func Open(prefix string) (Dir, error) {
	absolute, err := filepath.Abs(prefix)
	if err != nil {
		return Dir{}, fmt.Errorf("looking for the configuration folder: %w", err)
	}
	info, err := os.Stat(filepath.Dir(absolute))
	if err != nil {
		return Dir{}, fmt.Errorf("looking for the configuration folder: %w", err)
	}
	if !info.IsDir() {
		return Dir{}, fmt.Errorf("looking for the configuration folder: %s is none", filepath.Dir(absolute))
	}
	return Dir{absolute}, nil
}

// Prefix is the absolute form of what Open was given.
func (d Dir) Prefix() string { return d.prefix }

// Socket is where the agent of this folder answers kubelet's probes.
func (d Dir) Socket() string { return d.prefix + suffixSocket }

// CheckPrefix returns an error that says what is allowed unless this can be the prefix of a folder.
func CheckPrefix(prefix string) error {
	if !filepath.IsAbs(prefix) || strings.HasSuffix(prefix, "/") {
		return errors.New("want an absolute path that ends in the beginning of a file's name")
	}
	return nil
}

// StoreSocket is where the agent of this folder keeps the supervisor's sockets (package fdstore).
func (d Dir) StoreSocket() string { return d.prefix + suffixStore }

// StatusFile is where the supervisor of this folder says how tunnels are.
func (d Dir) StatusFile() string { return d.prefix + suffixStatus }

// Names are the tunnels that have a specification, in order.
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

// TunnelOf is the tunnel whose specification a file is, "" when it is none.
func (d Dir) TunnelOf(file string) string {
	name, ok := strings.CutPrefix(filepath.Base(file), filepath.Base(d.prefix)+beforeSpec)
	name, isSpec := strings.CutSuffix(name, afterSpec)
	if !ok || !isSpec || spec.CheckName(name) != nil {
		return ""
	}
	return name
}

func (d Dir) specFile(name string) string { return d.prefix + beforeSpec + name + afterSpec }

// Write puts a tunnel's specification in place. Equal bytes are not written again.
func (d Dir) Write(name string, text []byte) (changed bool, err error) {
	if err := spec.CheckName(name); err != nil {
		return false, fmt.Errorf("writing a tunnel's specification: %w", err)
	}
	return put(d.specFile(name), text, fileMode)
}

// Read gives a tunnel's specification, nil when it has none.
func (d Dir) Read(name string) ([]byte, error) {
	if err := spec.CheckName(name); err != nil {
		return nil, fmt.Errorf("reading a tunnel's specification: %w", err)
	}
	return read(d.specFile(name))
}

// Remove ends a tunnel, and takes its certificate away. One that is gone already is fine.
func (d Dir) Remove(name string) error {
	if err := remove(name, d.specFile(name)); err != nil {
		return err
	}
	return d.RemoveCertificate(name)
}

// ConfigFile is where the stunnel process of a tunnel finds its configuration.
func (d Dir) ConfigFile(name string) string { return d.prefix + "." + name }

// WriteConfig puts it in place. Equal bytes are not written again: on a full disk, too, a process
// that died is started again.
func (d Dir) WriteConfig(name string, text []byte) error {
	if err := spec.CheckName(name); err != nil {
		return fmt.Errorf("writing stunnel's configuration: %w", err)
	}
	_, err := put(d.ConfigFile(name), text, fileMode)
	return err
}

// RemoveConfig takes it away. One that is gone already is fine.
func (d Dir) RemoveConfig(name string) error { return remove(name, d.ConfigFile(name)) }

// Status is what the supervisor said last, fs.ErrNotExist while none runs.
func (d Dir) Status() ([]byte, error) { return os.ReadFile(d.StatusFile()) }

// WriteStatus puts it in place.
func (d Dir) WriteStatus(text []byte) error {
	_, err := put(d.StatusFile(), text, fileMode)
	return err
}

// RemoveStatus takes it away. One that is gone already is fine.
func (d Dir) RemoveStatus() error {
	if err := os.Remove(d.StatusFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the status: %w", err)
	}
	return nil
}

// Table is the last good table, nil when there was none.
func (d Dir) Table() ([]byte, error) { return read(d.prefix + suffixTable) }

// WriteTable keeps a table.
func (d Dir) WriteTable(text []byte) error {
	_, err := put(d.prefix+suffixTable, text, fileMode)
	return err
}

// Memory is what the agent noted last, nil when it never did.
func (d Dir) Memory() ([]byte, error) { return read(d.prefix + suffixMemory) }

// WriteMemory keeps the agent's notes.
func (d Dir) WriteMemory(text []byte) error {
	_, err := put(d.prefix+suffixMemory, text, fileMode)
	return err
}

func read(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading what was kept: %w", err)
	}
	return text, nil
}

func remove(name, path string) error {
	if err := spec.CheckName(name); err != nil {
		return fmt.Errorf("removing a tunnel's file: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a tunnel's file: %w", err)
	}
	return nil
}

// put replaces a file unless it has the content already.
func put(path string, content []byte, mode fs.FileMode) (changed bool, err error) {
	old, err := os.ReadFile(path)
	if err == nil && bytes.Equal(old, content) {
		return false, nil
	}
	// The name begins with a dot, so that nobody takes it for a tunnel's. It is always the same:
	// whoever dies before the rename leaves one file, not one for each time.
	fresh := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("writing a file: %w", err)
	}
	if err := create(fresh, content, mode); err != nil {
		return false, fmt.Errorf("writing a file: %w", err)
	}
	if err := os.Rename(fresh, path); err != nil {
		return false, fmt.Errorf("writing a file: %w", err)
	}
	return true, nil
}

// create follows no link that somebody else may have put there.
func create(path string, content []byte, mode fs.FileMode) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Close())
}
