// Package posix tests one directory for what POSIX says of files. By itself it tests a local file system; a pod of the
// lab runs the same program on a volume.
package posix

import (
	"errors"
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"
)

var (
	mounted = flag.String("dir", "", "the directory to be tested, on NFS; a local one without it")
	// differences are the tests that fail on NFS, or skip themselves, with Linux' client and a server of NFSv4.1.
	differences = map[string]string{
		"DirSeek":           "a listing that goes on in its middle may not have the types of entries",
		"Fallocate":         "NFSv4.1 has no such request: it is not supported",
		"FallocateKeepSize": "NFSv4.1 has no such request: it is not supported",
		"FstatDeleted":      "a removed file that is open is renamed, and keeps its link",
		"NlinkZero":         "a replaced file that is open is renamed, and keeps its link",
		"RenameOpenDir":     "a removed directory that is open is stale",
		"SetattrSymlink":    "NFS-Ganesha 6.5 does not set the times of symbolic links, and says that it did",
		"Tmpfile":           "NFSv4.1 has no file without a name: O_TMPFILE is not supported",
		"XAttr":             "NFSv4.1 has no extended attributes",
		"XAttrLarge":        "NFSv4.1 has no extended attributes",
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
			t.Cleanup(func() {
				if t.Skipped() && *mounted != "" {
					t.Error("it skipped itself, and is no known difference")
				}
			})
			posixtest.All[name](t, directory(t))
		})
	}
}

// TestThePageNamesTheDifferences, so that users know all of them.
func TestThePageNamesTheDifferences(t *testing.T) {
	if *mounted != "" {
		t.Skip("a pod has no pages")
	}
	page, err := os.ReadFile("../../../docs/concepts/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range differences {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("the page does not name %s", name)
		}
		if posixtest.All[name] == nil {
			t.Errorf("there is no test %s", name)
		}
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
