// Package ganesha runs one nfs-ganesha for each export: a file system, or an
// access point's part of one. Ganesha is run from a folder into which its
// Debian packages were extracted, because installing them starts a service.
package ganesha

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gnuthought.com/efs-stunnel/hack/lab/internal/artifacts"
)

// Packages lists the Debian packages that a root must be made of, together
// with all that they depend on.
func Packages() []string { return []string{"nfs-ganesha", "nfs-ganesha-vfs"} }

// Root is the folder of extracted packages.
type Root string

const (
	program = "usr/bin/ganesha.nfsd"
	plugins = "usr/lib/x86_64-linux-gnu/ganesha"
	library = "usr/lib/ganesha" // libganesha_nfsd
)

func (r Root) path(inside ...string) string {
	return filepath.Join(string(r), filepath.Join(inside...))
}

// Check tells whether everything that Ganesha needs is there.
func (r Root) Check() error {
	for _, file := range []string{
		r.path(program),
		artifacts.Loader(string(r)),
		r.path(plugins, "libfsalvfs.so"),
		r.path(library, "libganesha_nfsd.so"),
	} {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("%s is no root of the extracted packages %s: %w", r, strings.Join(Packages(), " and "), err)
		}
	}
	return nil
}

// command is the whole command line, in the foreground.
func (r Root) command(f files) []string {
	return append(artifacts.Command(string(r), program, library),
		"-F", "-f", f.config, "-L", f.log, "-p", f.pid, "-N", "EVENT")
}
