// Package cache keeps what is expensive to make (built programs, file
// systems of machines) outside the repository, under a key of all its inputs.
package cache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Cache is a folder shared by all labs of this machine.
type Cache struct{ Dir string }

// Default returns the cache in ${XDG_CACHE_HOME:-~/.cache}/efs-stunnel/lab.
func Default() (Cache, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return Cache{}, fmt.Errorf("finding the cache folder: %w: set HOME or XDG_CACHE_HOME", err)
	}
	return Cache{filepath.Join(base, "efs-stunnel", "lab")}, nil
}

// Key mixes inputs into a short name.
func Key(inputs ...string) string {
	h := sha256.New()
	for _, in := range inputs {
		fmt.Fprintf(h, "%d:%s", len(in), in)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// Has reports whether Folder would find the folder.
func (c Cache) Has(kind, key string) bool { return exists(c.path(kind, key)) }

func (c Cache) path(kind, key string) string { return filepath.Join(c.Dir, kind+"-"+key) }

// Folder returns the folder <kind>-<key>, filled by fill when it is not there
// yet. Two programs that want it at once make it once; a fill that dies leaves
// nothing under the final name. made says whether this call made it.
func (c Cache) Folder(ctx context.Context, kind, key string, fill func(ctx context.Context, dir string) error) (dir string, made bool, err error) {
	dir = c.path(kind, key)
	if exists(dir) {
		return dir, false, nil
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return "", false, fmt.Errorf("making the cache folder: %w", err)
	}
	unlock, err := c.lock(kind)
	if err != nil {
		return "", false, err
	}
	defer unlock()
	if exists(dir) {
		return dir, false, nil
	}
	return dir, true, create(ctx, dir, fill)
}

func create(ctx context.Context, dir string, fill func(context.Context, string) error) error {
	tmp := dir + ".partial"
	if err := os.RemoveAll(tmp); err != nil {
		return fmt.Errorf("clearing %s: %w", tmp, err)
	}
	if err := os.Mkdir(tmp, 0o755); err != nil {
		return fmt.Errorf("filling the cache: %w", err)
	}
	if err := fill(ctx, tmp); err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	if err := os.Rename(tmp, dir); err != nil {
		return fmt.Errorf("filling the cache: %w", err)
	}
	return nil
}

func (c Cache) lock(kind string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(c.Dir, kind+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the cache: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("locking the cache: %w", err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
