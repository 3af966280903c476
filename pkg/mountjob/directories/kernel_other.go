//go:build !linux

package directories

import (
	"errors"
	"io/fs"
	"os"
)

// The manager can be built anywhere; mount Jobs run on Linux.

// CheckNFS cannot know.
func CheckNFS(string) error { return errors.ErrUnsupported }

func renameBetween(*os.Root, string, *os.Root, string) error { return errors.ErrUnsupported }
func touch(*os.File) error                                   { return errors.ErrUnsupported }
func tryLock(*os.File) (bool, error)                         { return false, errors.ErrUnsupported }
func groupOf(fs.FileInfo) int                                { return 0 }
func userOf(fs.FileInfo) int                                 { return 0 }
