package standin

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/ganesha"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory"
)

// exportOf describes how an access point is served, and makes its root directory if it is missing.
// Clients can create symlinks in the file system, so paths are resolved inside of it only.
func exportOf(fileSystemDir string, p inventory.AccessPoint) (ganesha.Export, error) {
	root, err := os.OpenRoot(fileSystemDir)
	if err != nil {
		return ganesha.Export{}, fmt.Errorf("opening its file system: %w", err)
	}
	defer root.Close()
	relative := path.Join(".", p.Path)
	info, err := root.Stat(relative)
	if errors.Is(err, os.ErrNotExist) && p.CreationInfo != nil {
		err = makeRoot(root, relative, *p.CreationInfo)
	} else if err == nil && !info.IsDir() {
		err = errors.New("is not a directory")
	}
	if err != nil {
		return ganesha.Export{}, fmt.Errorf("root directory %s: %w", p.Path, err)
	}
	export := ganesha.Export{Name: p.ID, Dir: filepath.Join(fileSystemDir, p.Path)}
	if p.PosixUser != nil {
		export.User = &ganesha.User{UID: p.PosixUser.UID, GID: p.PosixUser.GID}
	}
	return export, nil
}

// makeRoot makes the directory with its owner and mode. Its missing parents belong to root.
func makeRoot(root *os.Root, relative string, info inventory.CreationInfo) error {
	mode, err := strconv.ParseUint(info.Permissions, 8, 16)
	if err != nil {
		return fmt.Errorf("permissions %q: %w", info.Permissions, err)
	}
	if err := root.MkdirAll(relative, 0o755); err != nil {
		return fmt.Errorf("making it: %w", err)
	}
	if err := root.Chown(relative, int(info.OwnerUID), int(info.OwnerGID)); err != nil {
		return fmt.Errorf("making it: %w", err)
	}
	// After chown, which drops setuid and setgid.
	if err := root.Chmod(relative, fileMode(mode)); err != nil {
		return fmt.Errorf("making it: %w", err)
	}
	return nil
}

func fileMode(unix uint64) os.FileMode {
	mode := os.FileMode(unix) & os.ModePerm
	for bit, flag := range map[uint64]os.FileMode{0o4000: os.ModeSetuid, 0o2000: os.ModeSetgid, 0o1000: os.ModeSticky} {
		if unix&bit != 0 {
			mode |= flag
		}
	}
	return mode
}
