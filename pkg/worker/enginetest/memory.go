// Package enginetest tests the engine of mountjob as a whole, and helps tests of what uses it.
package enginetest

import (
	"os"
	"testing"
)

// Memory is a folder that needs no disk, where the machine has one: no test depends on whether what was
// written has reached the disk, and waiting for that takes most of the time.
func Memory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "efs-stunnel-test-") //nolint:usetesting // TempDir is on the disk
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
