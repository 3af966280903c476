package directories

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/operations"
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
	f.step = step
	return f.Clone(context.Background(), op, CloneOptions{Workers: 1})
}

func (w *fixture) cloned(op operations.Operation) operations.Result {
	w.t.Helper()
	f := w.open(nil)
	defer f.Close()
	result := f.Clone(context.Background(), op, CloneOptions{})
	if result.State != operations.Done {
		w.t.Fatalf("clone of %s: %+v", op.SourcePath, result)
	}
	return result
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
			line += fmt.Sprintf(" %d names %d bytes, in blocks %v, %q", is.Nlink, is.Size, is.Blocks*blockSize >= is.Size, bytes.TrimRight(data, "\x00"))
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
	must(os.Truncate(top+"/holes", 64<<20))
	file, err := os.OpenFile(top+"/holes", os.O_WRONLY, 0)
	must(err)
	_, err = file.WriteAt([]byte("in the middle"), 32<<20)
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

// Whatever step a run dies before, the source stays as it is, nothing is at the path or all is, and the next
// run completes the copy.
func TestCloneAfterACrashAtEveryStep(t *testing.T) {
	asRoot(t)
	prepared := func() *fixture {
		w := newFixture(t)
		w.withSource()
		return w
	}
	var steps []string
	prepared().cloneWith(theClone(), func(step string) error {
		steps = append(steps, step)
		return nil
	})
	for i, step := range steps {
		w := prepared()
		before := w.tree(sourcePath)
		if result := w.cloneWith(theClone(), crashAt(i)); result.State == operations.Done {
			t.Fatalf("it was done before step %d (%s)", i, step)
		}
		if _, err := os.Lstat(w.path(clonePath)); err == nil {
			if diff := difference(before, w.tree(clonePath)); diff != "" {
				t.Errorf("after a crash before step %d (%s), half a copy is there:\n%s", i, step, diff)
			}
		}
		w.cloned(theClone())
		w.wantCopy()
		if diff := difference(before, w.tree(sourcePath)); diff != "" {
			t.Errorf("after a crash before step %d (%s), the source has changed:\n%s", i, step, diff)
		}
		if t.Failed() {
			t.Fatalf("after a crash before step %d (%s)", i, step)
		}
	}
	t.Logf("%d steps", len(steps))
}

// The answer to the rename that publishes the copy is lost: it may be there, and must not be made again.
func TestCloneWhoseAnswerIsLost(t *testing.T) {
	for _, answer := range []error{syscall.EIO, syscall.ENOENT} {
		w := newFixture(t)
		w.withSource()
		f := w.open(nil)
		defer f.Close()
		f.lost = func(step string) error {
			if step == "publish "+clonePath {
				return answer
			}
			return nil
		}
		if result := f.Clone(t.Context(), theClone(), CloneOptions{}); result.State != operations.Failed {
			t.Errorf("got %+v", result)
		}
		w.cloned(theClone())
		w.wantCopy()
	}
}

func TestCloneGoesOnWhereItStopped(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	for i := range 20 {
		w.write(fmt.Sprintf("%s/file-%d", sourcePath, i), "x")
	}
	copied := 0
	result := w.cloneWith(theClone(), func(step string) error {
		if strings.HasPrefix(step, "copy file-") {
			if copied++; copied == 11 {
				return errCrash
			}
		}
		return nil
	})
	if result.State != operations.NotDone || result.Reason != operations.Stopped {
		t.Fatalf("got %+v", result)
	}
	staged := filepath.Join(".efs-stunnel/clones", theClone().Volume, "copy")
	found, err := filepath.Glob(w.path(staged + "/file-*"))
	if err != nil || len(found) != 10 {
		t.Fatalf("%d files are copied (%v)", len(found), err)
	}
	inodes := map[string]uint64{}
	for _, p := range found {
		inodes[filepath.Base(p)] = w.inode(filepath.Join(staged, filepath.Base(p)))
	}
	// Meanwhile the source changes.
	changed, removed := filepath.Base(found[0]), filepath.Base(found[1])
	w.write(sourcePath+"/"+changed, "changed")
	if err := os.Remove(w.path(sourcePath + "/" + removed)); err != nil {
		t.Fatal(err)
	}
	w.cloned(theClone())
	w.wantCopy()
	for name, inode := range inodes {
		if name != removed && name != changed && w.inode(clonePath+"/"+name) != inode {
			t.Errorf("%s was copied again", name)
		}
	}
}

func (w *fixture) inode(p string) uint64 {
	w.t.Helper()
	info, err := os.Lstat(w.path(p))
	if err != nil {
		w.t.Fatal(err)
	}
	return statOf(info).Ino
}

// What was of another kind in an earlier run is replaced.
func TestCloneReplacesWhatHasChangedItsKind(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	w.cloneWith(theClone(), failAt("publish "+clonePath))
	top := w.path(sourcePath)
	for _, err := range []error{
		os.RemoveAll(top + "/sub"), os.WriteFile(top+"/sub", []byte("a file now"), 0o600),
		os.Remove(top + "/b"), os.Mkdir(top+"/b", 0o755), os.WriteFile(top+"/b/file", nil, 0o600),
		os.Remove(top + "/out"), os.Symlink("elsewhere", top+"/out"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	w.cloned(theClone())
	w.wantCopy()
}

func TestSourceIsRemovedWhileItIsCopied(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	result := w.cloneWith(theClone(), func(step string) error {
		if step == "copy b" {
			w.done(cleanupOf(owner("c1", "ns", 1), sourcePath))
			w.sweep(time.Hour)
		}
		return nil
	})
	if result.State != operations.Failed || result.Reason != operations.SourceGone {
		t.Errorf("got %+v", result)
	}
	w.gone(clonePath)
}

func TestSourceIsReplacedWhileItIsCopied(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	result := w.cloneWith(theClone(), func(step string) error {
		if step != "copy b" {
			return nil
		}
		return errors.Join(os.Rename(w.path(sourcePath), w.path("/ns/old")), os.Mkdir(w.path(sourcePath), 0o755))
	})
	if result.State != operations.Failed || result.Reason != operations.Changed {
		t.Errorf("got %+v", result)
	}
	w.gone(clonePath)
}

// A tenant replaces directories and files by links to what it must not read, whenever the copy stops to look.
func TestCloneFollowsNoLink(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	w.write("/secret/c", "secret")
	w.write("/secret/deeper/d", "secret")
	attack := func(step string) error {
		for _, name := range []string{"sub", "b", "a"} {
			p := w.path(sourcePath + "/" + name)
			if strings.Contains(step, "out") || strings.Contains(step, "copy") {
				_ = os.RemoveAll(p)
				_ = os.Symlink(w.path("/secret"), p)
			}
		}
		return nil
	}
	result := w.cloneWith(theClone(), attack)
	if result.State != operations.Done {
		t.Fatalf("got %+v", result)
	}
	for name, line := range w.tree(clonePath) {
		if strings.Contains(line, `"secret"`) {
			t.Errorf("%s has what is outside of the source: %s", name, line)
		}
	}
}

// A file that is written to all the time is in the copy as it was at some time.
func TestFileThatChangesAllTheTime(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	file, err := os.Create(w.path(sourcePath + "/log"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			if _, err := file.WriteString("line\n"); err != nil {
				return
			}
		}
	})
	w.cloned(theClone())
	stop()
	writing.Wait()
	whole, err := os.ReadFile(w.path(sourcePath + "/log"))
	part, partErr := os.ReadFile(w.path(clonePath + "/log"))
	if err := errors.Join(err, partErr, file.Close()); err != nil || !bytes.HasPrefix(whole, part) {
		t.Errorf("the copy of %d bytes is no part of the file, which has %d (%v)", len(part), len(whole), err)
	}
}

func TestCloneOfTooDeepATree(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	w.nest(sourcePath, maxCloneDepth+1)
	result := w.cloneWith(theClone(), nil)
	if result.State != operations.Failed || result.Reason != operations.TooDeep {
		t.Errorf("got %+v", result)
	}
	w.gone(clonePath)
}

// nest makes directories inside each other, deeper than a path can say.
func (w *fixture) nest(top string, depth int) {
	w.t.Helper()
	at, err := os.Open(w.path(top))
	for ; err == nil && depth > 0; depth-- {
		if err = unix.Mkdirat(int(at.Fd()), "d", 0o755); err == nil {
			var below *os.File
			below, err = openAt(at, "d", unix.O_DIRECTORY, 0)
			_ = at.Close()
			at = below
		}
	}
	if err := errors.Join(err, at.Close()); err != nil {
		w.t.Fatal(err)
	}
}

func TestCloneWithoutSpaceGoesOnLater(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	f := w.open(nil)
	defer f.Close()
	f.space = func(step string) error {
		if strings.HasPrefix(step, "copy sub") {
			return noSpace(step)
		}
		return nil
	}
	if result := f.Clone(t.Context(), theClone(), CloneOptions{Workers: 1}); result.Reason != operations.NoSpace {
		t.Errorf("got %+v", result)
	}
	w.gone(clonePath)
	w.cloned(theClone())
	w.wantCopy()
}

// Two runs never copy at once: the second one waits for the first.
func TestSecondRunWaits(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	ended := false
	var second operations.Result
	first := w.cloneWith(theClone(), func(step string) error {
		if step == "copy b" {
			f := w.open(nil)
			defer f.Close()
			ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer stop()
			second, ended = f.Clone(ctx, theClone(), CloneOptions{}), true
			w.do(abandoned(theClone()), operations.Failed, operations.Locked)
		}
		return nil
	})
	if first.State != operations.Done || !ended || second.Reason != operations.Locked {
		t.Errorf("the first: %+v\nthe second: %+v", first, second)
	}
	w.wantCopy()
}

// Batches of other claims go on while a volume is copied.
func TestBatchesGoOnBesideAClone(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	result := w.cloneWith(theClone(), func(step string) error {
		if step == "copy b" {
			w.done(setupOf(owner("c1", "ns", 7), "/ns/seven"))
			w.done(cleanupOf(owner("c1", "ns", 7), "/ns/seven"))
		}
		return nil
	})
	if result.State != operations.Done {
		t.Errorf("got %+v", result)
	}
	w.wantCopy()
}

func TestAbandonedClone(t *testing.T) {
	staged := "/.efs-stunnel/clones/" + theClone().Volume
	tests := map[string]func(w *fixture){
		"before it began": func(*fixture) {},
		"in the middle":   func(w *fixture) { w.cloneWith(theClone(), failAt("copy sub/c")) },
		"at its end":      func(w *fixture) { w.cloneWith(theClone(), failAt("publish "+clonePath)) },
		"published":       func(w *fixture) { w.cloned(theClone()) },
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.withSource()
			before := w.tree(sourcePath)
			prepare(w)
			w.done(abandoned(theClone()))
			w.gone(staged, clonePath, "/.efs-stunnel/owners"+clonePath)
			w.sweep(time.Hour)
			left, err := os.ReadDir(w.path("/.efs-stunnel/trash/" + stagingName))
			if err != nil || len(left) > 0 {
				t.Errorf("the sweep has left %v (%v)", left, err)
			}
			w.done(abandoned(theClone())) // repeated
			if diff := difference(before, w.tree(sourcePath)); diff != "" {
				t.Errorf("the source has changed:\n%s", diff)
			}
			w.cloned(theClone()) // begun anew
			w.wantCopy()
		})
	}
}

// A copy that nothing goes on with is swept, much later.
func TestForgottenCopyIsSwept(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	w.now = time.Now()
	w.cloneWith(theClone(), failAt("copy sub/c"))
	staged := "/.efs-stunnel/clones/" + theClone().Volume
	w.sweep(29 * 24 * time.Hour)
	w.there(staged)
	w.sweep(31 * 24 * time.Hour)
	w.gone(staged)
}

func TestCloneReportsItsProgress(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	f := w.open(nil)
	defer f.Close()
	var progress func() operations.CloneProgress
	result := f.Clone(t.Context(), theClone(), CloneOptions{Started: func(p func() operations.CloneProgress) { progress = p }})
	if result.State != operations.Done {
		t.Fatalf("got %+v", result)
	}
	want := operations.CloneProgress{Files: 9, Found: 9, Bytes: int64(4 * len("content of a"))}
	if got := progress(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if result.Message != "copied 9 files of claim claim-1" {
		t.Errorf("message %q", result.Message)
	}
}
