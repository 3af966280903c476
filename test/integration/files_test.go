//go:build integration

package integration_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// fileContent is the content that tests write into a volume.
const fileContent = "precious"

// local returns a path of the file system on this machine.
func (f *fixture) local(path string) string { return filepath.Join(f.Folder(f.fileSystem), path) }

// makeDirectory makes a directory with a file, which no volume owns.
func (f *fixture) makeDirectory(path string) {
	f.Helper()
	f.check(os.MkdirAll(f.local(path), 0o755))
	f.writeFile(path)
}

// writeFile writes a file into a directory, as an application does.
func (f *fixture) writeFile(path string) {
	f.Helper()
	f.check(os.WriteFile(filepath.Join(f.local(path), "file"), []byte(fileContent), 0o600))
}

func (f *fixture) expectFile(path string) {
	f.Helper()
	if text, err := os.ReadFile(filepath.Join(f.local(path), "file")); err != nil || string(text) != fileContent {
		f.Errorf("the file in %s has the content %q: %v\n%s", path, text, err, f.Dump())
	}
}

// names returns the entries of a directory, none if it does not exist.
func (f *fixture) names(path string) []string {
	f.Helper()
	entries, err := os.ReadDir(f.local(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// owners returns the volumes in the ledger, by path.
func (f *fixture) owners() map[string][]string {
	f.Helper()
	found, root := map[string][]string{}, f.local(wellknown.OwnersDirectory)
	f.check(filepath.WalkDir(root, func(name string, _ fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if volume, ok := strings.CutPrefix(filepath.Base(name), wellknown.OwnerPrefix); ok && err == nil {
			path := strings.TrimPrefix(filepath.Dir(name), root)
			found[path] = append(found[path], volume)
		}
		return err
	}))
	return found
}

// trash lists what is in the trash, also what is being swept: the trash itself, and the directories for what is due later.
func (f *fixture) trash() []string {
	f.Helper()
	var all []string
	for _, name := range f.names(wellknown.TrashDirectory) {
		if name == "@@sweeping" || name == strings.ToUpper(name) {
			all = append(all, f.names(filepath.Join(wellknown.TrashDirectory, name))...)
		} else {
			all = append(all, name)
		}
	}
	return all
}

// inTrash finds the directory of a volume in the trash; if it is not there, it returns where it would be at once.
func (f *fixture) inTrash(volume string) string {
	f.Helper()
	found, err := filepath.Glob(f.local(wellknown.TrashDirectory + "/*/" + volume))
	f.check(err)
	for _, at := range found {
		if bucket := filepath.Base(filepath.Dir(at)); bucket == strings.ToUpper(bucket) {
			return wellknown.TrashDirectory + "/" + bucket + "/" + volume
		}
	}
	return wellknown.TrashDirectory + "/" + volume
}

// ownDirectory returns the path of a claim without volume_name in a class without parameters.
func ownDirectory(claim *corev1.PersistentVolumeClaim) string {
	return fmt.Sprintf("/%s/%s-%s", claim.Namespace, claim.Name, claim.UID)
}

func (f *fixture) expectNothingAt(path string) {
	f.Helper()
	if f.Exists(f.fileSystem, path) {
		f.Errorf("%s exists\n%s", path, f.Dump())
	}
}

// expectNoTrace expects neither the directory nor owners of it in the ledger.
func (f *fixture) expectNoTrace(path string) {
	f.Helper()
	f.expectNothingAt(path)
	if owners := f.owners()[path]; len(owners) > 0 {
		f.Errorf("the ledger has %q for %s\n%s", owners, path, f.Dump())
	}
}

// waitForCleanup waits until the volumes of deleted claims are deleted, and expects neither
// directories nor owners of any volume.
func (f *fixture) waitForCleanup(claims ...*corev1.PersistentVolumeClaim) {
	f.Helper()
	for _, claim := range claims {
		f.WaitForVolumeDeleted(claim)
	}
	if owners := f.owners(); len(owners) > 0 {
		f.Errorf("the ledger still has %v\n%s", owners, f.Dump())
	}
	if left := f.names(f.Team); len(left) > 0 {
		f.Errorf("directories %q are left\n%s", left, f.Dump())
	}
}

// waitForCleanupAndSweep also waits until the trash is empty.
func (f *fixture) waitForCleanupAndSweep(claims ...*corev1.PersistentVolumeClaim) {
	f.Helper()
	f.waitForCleanup(claims...)
	f.waitForEmptyTrash()
}

func (f *fixture) waitForEmptyTrash() {
	f.Helper()
	f.Eventually("the trash is empty", func(context.Context) error {
		if left := f.trash(); len(left) > 0 {
			return fmt.Errorf("it has %q", left)
		}
		return nil
	})
}
