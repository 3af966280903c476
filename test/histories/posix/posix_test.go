// Package posix tests one directory for what POSIX says of files. By itself it tests a local file system; a pod of the
// lab runs the same program on a volume.
package posix

import (
	"errors"
	"flag"
	"maps"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"
)

var (
	mounted = flag.String("dir", "", "the directory to be tested, on NFS; a local one without it")
	// differences are the tests that fail on NFS, with Linux' client and a server of NFSv4.1. The page of guarantees
	// names them.
	differences = map[string]string{
		"Fallocate":         "NFSv4.1 has no such request: it is not supported",
		"FallocateKeepSize": "NFSv4.1 has no such request: it is not supported",
		"FstatDeleted":      "a removed file that is open is renamed, and keeps its link",
		"NlinkZero":         "a replaced file that is open is renamed, and keeps its link",
	}
	// unsound are the tests that fail everywhere; go-fuse skips them, too.
	unsound = map[string]string{
		"FcntlFlockLocksFile": "POSIX locks of one process do not exclude each other",
		"OpenSymlinkRace":     "it attacks a server of FUSE",
	}
)

// directory returns a new directory where the tests are to run.
func directory(t *testing.T) string {
	t.Helper()
	if *mounted == "" {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(*mounted, "posix-") //nolint:usetesting // on the mount
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestPosix(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(posixtest.All)) {
		t.Run(name, func(t *testing.T) {
			why, skipped := unsound[name]
			if *mounted != "" && !skipped {
				why, skipped = differences[name]
			}
			if skipped {
				t.Skip(why)
			}
			posixtest.All[name](t, directory(t))
		})
	}
}

// errnoOf returns the number of an error, by which two file systems are compared.
func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	if err != nil && !errors.As(err, &errno) {
		return syscall.ENOTRECOVERABLE
	}
	return errno
}
