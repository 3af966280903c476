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
	"strconv"
	"strings"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
)

// The name of the tunnel is between these.
const specPrefix, specSuffix = "-tunnel.", ".json"

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
func (d Dir) Socket() string { return d.prefix + "-agent.sock" }

// StoreSocket returns the path of the unix socket where the agent stores the supervisor's sockets
// (package fdstore).
func (d Dir) StoreSocket() string { return d.prefix + "-sockets.sock" }

// LaneSocket returns the path of a unix socket on which a stunnel with lanes listens, by the number of
// its front.
func (d Dir) LaneSocket(n int) string { return d.prefix + "-lane" + strconv.Itoa(n) }

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
	if !ok || !isSpec || tunnelspec.CheckName(name) != nil {
		return ""
	}
	return name
}

// file is a file of the supervisor or the agent, which run as one user: no other user reads it.
func (d Dir) file(suffix string) File { return File{path: d.prefix + suffix, mode: 0o600} }

// tunnelFile returns a file whose name contains that of a tunnel, if that is valid.
func (d Dir) tunnelFile(prefix, name, suffix string) File {
	f := d.file(prefix + name + suffix)
	f.err = tunnelspec.CheckName(name)
	return f
}

// Spec is a tunnel's specification.
func (d Dir) Spec(name string) File { return d.tunnelFile(specPrefix, name, specSuffix) }

// Certificate is a tunnel's client certificate in PEM.
func (d Dir) Certificate(name string) File { return d.tunnelFile("-client.", name, ".pem") }

// Authorities are a tunnel's own trusted roots in PEM.
func (d Dir) Authorities(name string) File { return d.tunnelFile("-ca.", name, ".pem") }

// Remove removes a tunnel's specification, client certificate and own roots, if there are any.
func (d Dir) Remove(name string) error {
	for _, file := range []File{d.Spec(name), d.Certificate(name), d.Authorities(name)} {
		if err := file.Remove(); err != nil {
			return err
		}
	}
	return nil
}

// Config is stunnel's configuration of a tunnel. Only its name has a dot after the prefix.
func (d Dir) Config(name string) File { return d.tunnelFile(".", name, "") }

// Key is the private key of all client certificates in PEM. It is never changed in place, only replaced.
func (d Dir) Key() File { return File{path: d.prefix + "-client.key", mode: 0o400} }

// Status is the supervisor's status, which is missing while no supervisor runs.
func (d Dir) Status() File { return d.file("-status.json") }

// Table is the last valid table of targets.
func (d Dir) Table() File { return d.file("-table.yaml") }

// State is the agent's state.
func (d Dir) State() File { return d.file("-agent.json") }

// File is a file of the directory, which may be missing. Its errors name the operation and the path.
type File struct {
	path string
	mode fs.FileMode
	err  error // the name of the tunnel in the path is invalid
}

// Path returns the file's path.
func (f File) Path() string { return f.path }

// Read returns nil if the file does not exist.
func (f File) Read() ([]byte, error) {
	if f.err != nil {
		return nil, f.err
	}
	text, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// Remove removes the file, if there is one.
func (f File) Remove() error {
	if f.err != nil {
		return f.err
	}
	if err := os.Remove(f.path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// HasContent reports whether the file exists with this content.
func (f File) HasContent(content []byte) bool {
	old, err := os.ReadFile(f.path)
	return f.err == nil && err == nil && bytes.Equal(old, content)
}

// Write replaces the file by a rename, unless it has the content already: stunnel can restart on a full
// disk.
func (f File) Write(content []byte) error {
	if f.HasContent(content) {
		return nil
	}
	// The leading dot keeps TunnelOf from matching the file. With a constant name, crashes leave one
	// temporary file at most.
	fresh := File{filepath.Join(filepath.Dir(f.path), "."+filepath.Base(f.path)+".new"), f.mode, f.err}
	if err := fresh.Remove(); err != nil {
		return err
	}
	if err := fresh.create(content); err != nil {
		return err
	}
	return os.Rename(fresh.path, f.path)
}

// create does not follow symbolic links.
func (f File) create(content []byte) error {
	opened, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.mode)
	if err != nil {
		return err
	}
	_, err = opened.Write(content)
	return errors.Join(err, opened.Close())
}
