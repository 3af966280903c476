// Package confdir is the folder through which the agent tells the supervisor which tunnels to
// run: one file for each, named <prefix>.<tunnel>. Beside them, under names that no tunnel can
// have, lies what the agent must know after a restart, and what stunnel reads besides: the client
// certificates of tunnels, and the key of all of them.
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

	"gnuthought.com/efs-stunnel/pkg/stunnelcfg"
)

// Names of what is kept for the agent itself. No dot follows the prefix, as it does in the names
// of tunnels' files.
const (
	suffixTable  = "-table.yaml"
	suffixMemory = "-agent.json"
	suffixSocket = "-agent.sock"
	suffixKey    = "-client.key"
	// A certificate's has the tunnel's name between.
	beforeTunnel, afterTunnel = "-client.", ".pem"
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

// Names are the tunnels that have a file, in order.
func (d Dir) Names() ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(d.prefix))
	if err != nil {
		return nil, fmt.Errorf("listing tunnels' files: %w", err)
	}
	var names []string
	for _, entry := range entries {
		name, ok := strings.CutPrefix(entry.Name(), filepath.Base(d.prefix)+".")
		if ok && stunnelcfg.CheckName(name) == nil && entry.Type().IsRegular() {
			names = append(names, name)
		}
	}
	return names, nil
}

// Write puts a tunnel's configuration in place. Equal bytes are not written again.
func (d Dir) Write(name string, content []byte) (changed bool, err error) {
	if err := stunnelcfg.CheckName(name); err != nil {
		return false, fmt.Errorf("writing a tunnel's file: %w", err)
	}
	return put(d.prefix+"."+name, content, fileMode)
}

// Read gives a tunnel's configuration, nil when it has none.
func (d Dir) Read(name string) ([]byte, error) {
	if err := stunnelcfg.CheckName(name); err != nil {
		return nil, fmt.Errorf("reading a tunnel's file: %w", err)
	}
	return read(d.prefix + "." + name)
}

// Remove ends a tunnel, and takes its certificate away. One that is gone already is fine.
func (d Dir) Remove(name string) error {
	if err := remove(name, d.prefix+"."+name); err != nil {
		return err
	}
	return d.RemoveCertificate(name)
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
	if err := stunnelcfg.CheckName(name); err != nil {
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
