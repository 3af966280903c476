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

func (r Root) program() string { return filepath.Join(string(r), "usr", "bin", "ganesha.nfsd") }

func (r Root) plugins() string {
	return filepath.Join(string(r), "usr", "lib", "x86_64-linux-gnu", "ganesha")
}

func (r Root) libraryPath() string {
	return artifacts.LibraryPath(string(r)) + ":" + filepath.Join(string(r), "usr", "lib", "ganesha") // libganesha_nfsd
}

// Check tells whether everything that Ganesha needs is there.
func (r Root) Check() error {
	for _, file := range []string{
		r.program(),
		artifacts.Loader(string(r)),
		filepath.Join(r.plugins(), "libfsalvfs.so"),
		filepath.Join(string(r), "usr", "lib", "ganesha", "libganesha_nfsd.so"),
	} {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("%s is no root of the extracted packages %s: %w", r, strings.Join(Packages(), " and "), err)
		}
	}
	return nil
}

// command is the whole command line, in the foreground.
func (r Root) command(f files) []string {
	return []string{
		artifacts.Loader(string(r)), "--library-path", r.libraryPath(), r.program(),
		"-F", "-f", f.config, "-L", f.log, "-p", f.pid, "-N", "EVENT",
	}
}
