// Package ganesha runs one nfs-ganesha for each export, which is a file system or the directory of an
// access point. Ganesha runs from a folder of its extracted Debian packages, because installing them
// starts a service.
package ganesha

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gnuthought.com/efs-stunnel/hack/lab/internal/artifacts"
)

// Packages lists the Debian packages that must be extracted into a root, with their dependencies.
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

// Check returns an error if a file that Ganesha needs is missing.
func (r Root) Check() error {
	for _, file := range []string{
		r.path(program),
		artifacts.Loader(string(r)),
		r.path(plugins, "libfsalvfs.so"),
		r.path(library, "libganesha_nfsd.so"),
	} {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("%s does not contain the extracted packages %s: %w", r, strings.Join(Packages(), " and "), err)
		}
	}
	return nil
}

// command returns the command line of a Ganesha in the foreground.
func (r Root) command(f files) []string {
	return append(artifacts.Command(string(r), program, library),
		"-F", "-f", f.config, "-L", f.log, "-p", f.pid, "-N", "EVENT")
}
