// Package enginetest tests the engine of mountjob as a whole.
package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/batch"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/ledger"
	"gnuthought.com/efs-stunnel/pkg/worker/trash"
	"gnuthought.com/efs-stunnel/pkg/worker/treewalk"
	"gnuthought.com/efs-stunnel/test/support/memorytest"
)

const fsID = "fs-0123456789abcdef0"

// fixture is a directory that plays a file system, with a clock that the test moves.
type fixture struct {
	t   testing.TB
	dir string
	now time.Time
	// full says that the server has no space.
	full bool
	// workers is how many operations are done at once; 0 is as in production.
	workers int
}

func noSpace(step string) error { return fmt.Errorf("%s: %w", step, syscall.ENOSPC) }

func newFixture(t testing.TB) *fixture {
	return &fixture{t: t, dir: memorytest.Folder(t), now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
}

// clone is a copy of the fixture, to try something on. Directories get the mode 0777 and root.
func (w *fixture) clone() *fixture {
	w.t.Helper()
	copied := &fixture{t: w.t, dir: filepath.Join(memorytest.Folder(w.t), "clone"), now: w.now, full: w.full, workers: w.workers}
	if err := os.CopyFS(copied.dir, os.DirFS(w.dir)); err != nil {
		w.t.Fatal(err)
	}
	return copied
}

func (w *fixture) open(step func(string) error) *fsroot.FileSystem {
	w.t.Helper()
	hooks := fsroot.Hooks{Step: step, ServerTime: func() time.Time { return w.now }}
	f, err := fsroot.Open(context.Background(), w.dir, fsroot.Options{FileSystemID: fsID, Hooks: hooks})
	if err != nil {
		w.t.Fatal(err)
	}
	if w.full {
		f.Space = noSpace
	}
	return f
}

func (w *fixture) options() batch.Options { return batch.Options{Workers: w.workers} }

func (w *fixture) run(ops ...operations.Operation) []operations.Result {
	w.t.Helper()
	f := w.open(nil)
	defer f.Close()
	return batch.Run(context.Background(), f, ops, w.options()).Results
}

// do runs one operation and wants the state and reason.
func (w *fixture) do(op operations.Operation, state operations.State, reason operations.Reason) operations.Result {
	w.t.Helper()
	result := w.run(op)[0]
	if result.State != state || result.Reason != reason {
		w.t.Fatalf("%s of %s: got %+v, want %s %s", op.Kind, op.Path, result, state, reason)
	}
	return result
}

func (w *fixture) done(ops ...operations.Operation) {
	w.t.Helper()
	for i, result := range w.run(ops...) {
		if !isPlainlyDone(result) {
			w.t.Fatalf("%s of %s: %+v", ops[i].Kind, ops[i].Path, result)
		}
	}
}

func isPlainlyDone(result operations.Result) bool {
	return reflect.DeepEqual(result, operations.Result{State: operations.Done})
}

func (w *fixture) sweep(after time.Duration) operations.Swept {
	w.t.Helper()
	f := w.open(nil)
	defer f.Close()
	f.ServerTime = func() time.Time { return w.now.Add(after) }
	swept, err := trash.Sweep(context.Background(), f, treewalk.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	return swept
}

func (w *fixture) path(p string) string { return filepath.Join(w.dir, p) }

// slot is where a directory is in the trash, in whatever bucket; if it is in none, where it would be at once.
func (w *fixture) slot(name string) string {
	w.t.Helper()
	found, err := filepath.Glob(w.path("/.efs-stunnel/trash/*/" + name))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, at := range found {
		if bucket := filepath.Base(filepath.Dir(at)); ledger.IsBucket(bucket) {
			return "/.efs-stunnel/trash/" + bucket + "/" + name
		}
	}
	return "/.efs-stunnel/trash/" + name
}

func (w *fixture) write(p, content string) {
	w.t.Helper()
	if err := os.MkdirAll(filepath.Dir(w.path(p)), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(w.path(p), []byte(content), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *fixture) link(target, p string) {
	w.t.Helper()
	if err := os.Symlink(target, w.path(p)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *fixture) there(paths ...string) {
	w.t.Helper()
	for _, p := range paths {
		if _, err := os.Lstat(w.path(p)); err != nil {
			w.t.Errorf("%s: %v", p, err)
		}
	}
}

func (w *fixture) gone(paths ...string) {
	w.t.Helper()
	for _, p := range paths {
		if _, err := os.Lstat(w.path(p)); !errors.Is(err, fs.ErrNotExist) {
			w.t.Errorf("%s is still there (%v)", p, err)
		}
	}
}

// entry reads an owner from the ledger.
func (w *fixture) entry(p, volume string) map[string]any {
	w.t.Helper()
	data, err := os.ReadFile(w.path(filepath.Join(".efs-stunnel/owners", p, "@"+volume)))
	if err != nil {
		w.t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		w.t.Fatal(err)
	}
	return fields
}

// dump is everything on the file system, but for the directories that each batch makes for itself: names, modes,
// groups and contents.
func (w *fixture) dump() map[string]string {
	w.t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(w.dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%v %d:%d", info.Mode(), fsroot.UserOf(info), fsroot.GroupOf(info))
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			line += " " + string(data)
		case info.Mode().Type() == fs.ModeSymlink:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			line += " -> " + target
		}
		rel, err := filepath.Rel(w.dir, p)
		if !d.IsDir() || !strings.HasPrefix(rel, ".efs-stunnel/tmp") {
			all[rel] = line
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// difference lists what differs between two dumps.
func difference(want, got map[string]string) string {
	var out strings.Builder
	both := maps.Clone(want)
	maps.Copy(both, got)
	for _, p := range slices.Sorted(maps.Keys(both)) {
		if want[p] != got[p] {
			fmt.Fprintf(&out, "%s\n  want %q\n  got  %q\n", p, want[p], got[p])
		}
	}
	return out.String()
}

// owner is the n-th claim of a namespace.
func owner(cluster, namespace string, n int) operations.Owner {
	uid := fmt.Sprintf("%s-%s-%d", cluster, namespace, n)
	return operations.Owner{
		Volume: "pvc-" + uid, Cluster: cluster, Namespace: namespace,
		Claim: fmt.Sprintf("claim-%d", n), ClaimUID: uid,
	}
}

func setupOf(o operations.Owner, p string) operations.Operation {
	return operations.Operation{Kind: operations.Setup, Owner: o, Path: p}
}
func cleanupOf(o operations.Owner, p string) operations.Operation {
	return operations.Operation{Kind: operations.Cleanup, Owner: o, Path: p}
}
func releaseOf(o operations.Owner, p string) operations.Operation {
	return operations.Operation{Kind: operations.Release, Owner: o, Path: p}
}

func restoreOf(o operations.Owner, p, uid string) operations.Operation {
	return operations.Operation{Kind: operations.Restore, Owner: o, Path: p, RestoreFrom: uid}
}

func allocating(op operations.Operation) operations.Operation {
	op.AllocateGID = true
	return op
}

// incarnation is the slot of the n-th directory of a volume.
func incarnation(volume string, n int) string {
	if n == 1 {
		return volume
	}
	return fmt.Sprintf("%s~%d", volume, n)
}

// staging is the directory, in the trash, of what is being removed.
const staging = "@@sweeping"
