// Package memorytest gives tests folders in memory.
package memorytest

import (
	"os"
	"testing"
)

// Folder returns a folder that needs no disk, where the machine has one: no test depends on whether what was
// written has reached the disk, and waiting for that takes most of the time.
func Folder(t testing.TB) string {
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
