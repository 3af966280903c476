package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/clone"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

const (
	sourcePath = "/ns/source"
	clonePath  = "/ns/deep/clone"
)

func cloneOf(o operations.Owner, p string, source operations.Owner, from string) operations.Operation {
	return operations.Operation{
		Kind: operations.Clone, Owner: o, Path: p,
		Source: operations.Source{SourcePath: from, SourceVolume: source.Volume, SourceClaim: source.Claim, SourceClaimUID: source.ClaimUID},
	}
}

// theClone copies what withSource makes.
func theClone() operations.Operation {
	return cloneOf(owner("c1", "ns", 2), clonePath, owner("c1", "ns", 1), sourcePath)
}

func abandoned(op operations.Operation) operations.Operation {
	op.Source, op.Abandon = operations.Source{}, true
	return op
}

// withSource sets up a source with some files.
func (w *fixture) withSource() {
	w.t.Helper()
	w.now = time.Now().Add(time.Hour) // no file is younger than its clone
	w.done(setupOf(owner("c1", "ns", 1), sourcePath))
	w.write(sourcePath+"/a", "content of a")
	w.write(sourcePath+"/b", "content of b")
	w.write(sourcePath+"/sub/c", "content of c")
	w.write(sourcePath+"/sub/deeper/d", "content of d")
	w.hardLink(sourcePath+"/a", sourcePath+"/sub/deeper/a-too")
	w.link("/etc/passwd", sourcePath+"/out")
}

func (w *fixture) hardLink(from, to string) {
	w.t.Helper()
	if err := os.Link(w.path(from), w.path(to)); err != nil {
		w.t.Fatal(err)
	}
}

// cloneWith runs a clone with a hook before each of its steps, one entry at a time.
func (w *fixture) cloneWith(op operations.Operation, step func(string) error) operations.Result {
	w.t.Helper()
	f := w.open(nil)
	defer f.Close()
	f.Step = step
	return clone.Clone(context.Background(), f, op, clone.Options{Workers: 1})
}

func (w *fixture) cloned(op operations.Operation) operations.Result {
	w.t.Helper()
	f := w.open(nil)
	defer f.Close()
	result := clone.Clone(context.Background(), f, op, clone.Options{})
	if result.State != operations.Done {
		w.t.Fatalf("clone of %s: %+v", op.SourcePath, result)
	}
	return result
}

// TestNothingIsRemovedWhileItIsOpen: an NFS client would rename it instead, and its directory could not be removed.
func TestNothingIsRemovedWhileItIsOpen(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	removed := 0
	result := w.cloneWith(theClone(), func(step string) error {
		name, ok := strings.CutPrefix(step, "remove /")
		if !ok {
			return nil
		}
		removed++
		open, err := filepath.Glob("/proc/self/fd/*")
		for _, descriptor := range open {
			file, err := os.Readlink(descriptor)
			info, statErr := os.Stat(file)
			if err == nil && statErr == nil && file == w.path(name) && info.Mode().IsRegular() {
				t.Errorf("%s, which is open", step)
			}
		}
		return err
	})
	if result.State != operations.Done || removed == 0 {
		t.Errorf("%+v, %d files were removed", result, removed)
	}
}

// tree is everything below a path that a copy must have, by name.
func (w *fixture) tree(top string) map[string]string {
	w.t.Helper()
	all, names := map[string]string{}, map[uint64]string{}
	err := filepath.WalkDir(w.path(top), func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var is unix.Stat_t
		if err := unix.Lstat(p, &is); err != nil {
			return err
		}
		rel, err := filepath.Rel(w.path(top), p)
		line := fmt.Sprintf("%o %d:%d %d.%d", is.Mode, is.Uid, is.Gid, is.Mtim.Sec, is.Mtim.Nsec)
		switch is.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			if first, ok := names[is.Ino]; ok {
				line += " same as " + first
			} else {
				names[is.Ino] = rel
			}
			line += fmt.Sprintf(" %d names %d bytes, in blocks %v, %q", is.Nlink, is.Size, is.Blocks*fsroot.BlockSize >= is.Size, bytes.TrimRight(data, "\x00"))
		case unix.S_IFLNK:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			line += " -> " + target
		}
		all[rel] = line
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

func (w *fixture) wantCopy() {
	w.t.Helper()
	if diff := difference(w.tree(sourcePath), w.tree(clonePath)); diff != "" {
		w.t.Errorf("the copy is not its source:\n%s", diff)
	}
	w.gone("/.efs-stunnel/clones/" + theClone().Volume)
}

func TestCloneIsItsSource(t *testing.T) {
	asRoot(t)
	w := newFixture(t)
	w.withSource()
	top := w.path(sourcePath)
	for _, name := range []string{"new\nline", "\x1b[31m", "invalid \xff\xfe", strings.Repeat("x", 255), "-rf", " ", "…"} {
		w.write(sourcePath+"/"+name, name)
	}
	w.write(sourcePath+"/"+strings.Repeat("deep/", 200)+"file", "far down")
	for target, name := range map[string]string{"../../../..": "up", "b": "inside", strings.Repeat("t", 4000): "long", "missing": "dangling"} {
		w.link(target, sourcePath+"/"+name)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(unix.Mkfifo(top+"/fifo", 0o622))
	must(unix.Mknod(top+"/socket", unix.S_IFSOCK|0o755, 0))
	must(os.Mkdir(top+"/empty", 0o755))
	must(os.Chown(top+"/b", 1001, 2002))
	must(unix.Chmod(top+"/b", 0o6755))
	must(os.Lchown(top+"/inside", 1001, 2002))
	must(os.Chown(top+"/sub", 0, 3003))
	must(unix.Chmod(top+"/sub", 0o3770))
	must(unix.Chmod(top+"/sub/c", 0o4000))
	must(os.WriteFile(top+"/holes", nil, 0o666))
	must(os.Truncate(top+"/holes", 8<<20))
	file, err := os.OpenFile(top+"/holes", os.O_WRONLY, 0)
	must(err)
	_, err = file.WriteAt([]byte("in the middle"), 4<<20)
	must(errors.Join(err, file.Close()))
	must(os.WriteFile(top+"/large", bytes.Repeat([]byte("large "), 100_000), 0o644))
	w.write(sourcePath+"/tail", "short")
	must(os.Truncate(top+"/tail", 5))
	old := time.Date(1999, 12, 31, 23, 59, 59, 123456789, time.UTC)
	for _, name := range []string{"b", "empty", "sub/deeper", "fifo"} {
		must(os.Chtimes(filepath.Join(top, name), old, old))
	}
	must(os.Chtimes(top, old, old))
	result := w.cloned(theClone())
	w.wantCopy()
	if !strings.Contains(result.Message, "of claim claim-1") {
		t.Errorf("message %q", result.Message)
	}
	if entry := w.entry(clonePath, theClone().Volume); entry["made"] != true || entry["claimUID"] != theClone().ClaimUID {
		t.Errorf("the entry is %v", entry)
	}
	w.done(cleanupOf(theClone().Owner, clonePath)) // like any volume that was made
	w.gone(clonePath)
	w.there(sourcePath + "/a")
}

func TestCloneCopiesExtendedAttributes(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	for _, name := range []string{"/a", "/sub"} {
		if err := unix.Setxattr(w.path(sourcePath+name), "user.color", []byte("blue"), 0); err != nil {
			t.Skip("the file system of the test has no extended attributes of users:", err)
		}
	}
	w.cloned(theClone())
	for _, name := range []string{"/a", "/sub"} {
		value := make([]byte, 16)
		if n, err := unix.Getxattr(w.path(clonePath+name), "user.color", value); err != nil || string(value[:n]) != "blue" {
			t.Errorf("%s has %q (%v)", name, value[:max(n, 0)], err)
		}
	}
}

func TestCloneLeavesDevicesOut(t *testing.T) {
	asRoot(t)
	w := newFixture(t)
	w.withSource()
	if err := unix.Mknod(w.path(sourcePath+"/null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		t.Skip("the machine makes no devices:", err)
	}
	result := w.cloned(theClone())
	w.gone(clonePath + "/null")
	w.there(clonePath + "/a")
	if !strings.Contains(result.Message, "1 devices were left out") {
		t.Errorf("message %q", result.Message)
	}
}

// A volume with a group of its own gives it to its pods, and the files have it.
func TestCloneHasTheGroupOfItsSource(t *testing.T) {
	asRoot(t)
	w := newFixture(t)
	gid := w.gidsOf(allocating(setupOf(owner("c1", "ns", 1), sourcePath)))[0]
	result := w.cloned(theClone())
	if result.GID != gid || gid == 0 {
		t.Errorf("the clone has gid %d, its source %d", result.GID, gid)
	}
	w.wantCopy()
	if again := w.cloned(theClone()); again.GID != gid || again.Message != "" {
		t.Errorf("a repeated clone has the result %+v", again)
	}
}

func TestCloneIsRefused(t *testing.T) {
	source, other := owner("c1", "ns", 1), owner("c1", "ns", 3)
	tests := map[string]struct {
		prepare func(w *fixture)
		op      func(op *operations.Operation)
		want    operations.Reason
	}{
		"without a source":                 {func(w *fixture) { w.done(cleanupOf(source, sourcePath)) }, nil, operations.SourceGone},
		"of a directory that is no volume": {func(w *fixture) { w.write("/data/file", "x") }, func(op *operations.Operation) { op.SourcePath = "/data" }, operations.SourceGone},
		"of another volume's directory":    {func(w *fixture) { w.done(setupOf(other, "/ns/other")) }, func(op *operations.Operation) { op.SourcePath = "/ns/other" }, operations.SourceGone},
		"of another claim's volume":        {nil, func(op *operations.Operation) { op.SourceClaimUID = "another" }, operations.SourceGone},
		"of another cluster":               {nil, func(op *operations.Operation) { op.Cluster = "c2" }, operations.SourceGone},
		"in another namespace":             {nil, func(op *operations.Operation) { op.Namespace = "evil" }, operations.OwnedByOtherNamespace},
		"of a directory that is not there": {func(w *fixture) {
			if err := os.RemoveAll(w.path(sourcePath)); err != nil {
				w.t.Fatal(err)
			}
		}, nil, operations.SourceGone},
		"of a link": {func(w *fixture) {
			if err := os.RemoveAll(w.path(sourcePath)); err != nil {
				w.t.Fatal(err)
			}
			w.link("/etc", sourcePath)
		}, nil, operations.SymlinkInPath},
		"of the whole file system": {nil, func(op *operations.Operation) { op.SourcePath = "/" }, operations.BadOperation},
		"of the ledger":            {nil, func(op *operations.Operation) { op.SourcePath = "/.efs-stunnel/owners" }, operations.BadOperation},
		"into itself":              {nil, func(op *operations.Operation) { op.Path = sourcePath + "/clone" }, operations.BadOperation},
		"over itself":              {nil, func(op *operations.Operation) { op.Path = sourcePath }, operations.BadOperation},
		"into the ledger":          {nil, func(op *operations.Operation) { op.Path = "/.efs-stunnel/x" }, operations.BadPath},
		"where a directory is":     {func(w *fixture) { w.write(clonePath+"/file", "x") }, nil, operations.PathTaken},
		"where a volume is":        {func(w *fixture) { w.done(setupOf(other, clonePath)) }, nil, operations.PathTaken},
		"inside a volume":          {func(w *fixture) { w.done(setupOf(other, "/ns/deep")) }, nil, operations.Nested},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.withSource()
			if tt.prepare != nil {
				tt.prepare(w)
			}
			op := theClone()
			if tt.op != nil {
				tt.op(&op)
			}
			before := w.dump()
			result := w.cloneWith(op, nil)
			if result.State != operations.Failed || result.Reason != tt.want {
				t.Errorf("got %+v, want %s", result, tt.want)
			}
			after := w.dump()
			delete(after, ".efs-stunnel/tmp") // a batch may make it
			delete(before, ".efs-stunnel/tmp")
			if diff := difference(before, after); diff != "" {
				t.Errorf("it has changed something:\n%s", diff)
			}
		})
	}
}

func TestBatchRefusesToCopy(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	w.do(theClone(), operations.Failed, operations.BadOperation)
}

// A file server is not asked for more than a clone's rate, and small files are copied side by side.
func TestCloneKeepsItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.done(setupOf(owner("c1", "ns", 1), sourcePath))
		for i := range 20 {
			for j := range 10 {
				w.write(fmt.Sprintf("%s/%d/%d", sourcePath, i, j), "small")
			}
		}
		alone, requests := w.cloneWithLatency(2, clone.Options{Workers: 1, Rate: 1e6})
		if least := time.Duration(requests) * 5 * time.Millisecond; alone < least {
			t.Errorf("one worker has done %d requests in %s, want at least %s", requests, alone, least)
		}
		parallel, _ := w.cloneWithLatency(3, clone.Options{Rate: 1e6})
		if parallel*10 > alone {
			t.Errorf("%d workers took %s, one %s", 64, parallel, alone)
		}
		slow, requests := w.cloneWithLatency(4, clone.Options{Rate: 100})
		if least := time.Duration(requests)*10*time.Millisecond - 50*time.Millisecond; slow < least {
			t.Errorf("%d requests took %s, want at least %s", requests, slow, least)
		}
	})
}

// cloneWithLatency is how long a clone takes with 5 ms for each request.
func (w *fixture) cloneWithLatency(n int, o clone.Options) (took time.Duration, requests int64) {
	w.t.Helper()
	f := w.open(nil)
	defer f.Close()
	all := withLatency(f)
	op := theClone()
	op.Path, op.Owner = fmt.Sprintf("%s-%d", clonePath, n), owner("c1", "ns", n)
	start := time.Now()
	if result := clone.Clone(context.Background(), f, op, o); result.State != operations.Done {
		w.t.Fatalf("%+v", result)
	}
	return time.Since(start), all.Load()
}
