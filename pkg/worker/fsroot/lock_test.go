package fsroot

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"gnuthought.com/efs-stunnel/test/support/memorytest"
)

// newTmpDirs returns those of a new run.
func newTmpDirs(t *testing.T, dir string) *TmpDirs {
	t.Helper()
	f, err := Open(t.Context(), dir, Options{FileSystemID: "fs-1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	tmp := &TmpDirs{System: f}
	t.Cleanup(tmp.Close)
	if err := tmp.RemoveOthers(t.Context()); err != nil {
		t.Fatal(err)
	}
	return tmp
}

func TestTmpDirsHaveOneUserEach(t *testing.T) {
	dir := memorytest.Folder(t)
	before := newTmpDirs(t, dir).System.State
	for _, name := range []string{"tmp-2", "tmp-3"} {
		if err := errors.Join(before.Mkdir(name, 0o700), before.WriteFile(name+"/leftover", nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	tmp := newTmpDirs(t, dir)
	var names []string
	take := func() *Dir {
		d, err := tmp.Take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, d.Path)
		return d
	}
	first, second := take(), take()
	tmp.Put(first)
	third := take()
	tmp.Put(second)
	tmp.Put(third)
	if want := []string{"/.efs-stunnel/tmp", "/.efs-stunnel/tmp-2", "/.efs-stunnel/tmp"}; !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
	for _, name := range []string{"tmp-2/leftover", "tmp-3"} {
		if _, err := before.Lstat(name); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
}

func TestTmpDirThatCannotBeMadeIsTriedAgain(t *testing.T) {
	tmp := newTmpDirs(t, memorytest.Folder(t))
	first, err := tmp.Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tmp.Put(first)
	tmp.System.Space = func(step string) error { return fmt.Errorf("%s: %w", step, syscall.ENOSPC) }
	for range 3 {
		if _, err := tmp.Take(t.Context()); !IsNoSpace(err) {
			t.Errorf("got %v", err)
		}
	}
	tmp.System.Space = nil
	second, err := tmp.Take(t.Context())
	if err != nil || second.Path == first.Path {
		t.Fatalf("got %v, %v", second, err)
	}
	tmp.Put(second)
}

// A run that lost the lock has made something aside, or is about to, when the next one begins. Whatever it sends
// after that, the server refuses it.
func TestNothingIsPutInPlaceByARunBeforeThisOne(t *testing.T) {
	dir := memorytest.Folder(t)
	late := newTmpDirs(t, dir)
	for _, half := range []string{"made", "not made yet"} {
		d, err := late.Take(t.Context()) // none is put back, so each is another one
		if err != nil {
			t.Fatal(err)
		}
		if half == "made" {
			err = d.Mkdir("half", PrivateDirectory)
		}
		next := newTmpDirs(t, dir)
		if _, takeErr := next.Take(t.Context()); err != nil || takeErr != nil {
			t.Fatal(err, takeErr)
		}
		if half != "made" {
			_ = d.Mkdir("half", PrivateDirectory)
		}
		if err := d.RenameTo("half", late.System.Root, "placed"); err == nil {
			t.Errorf("in %s, %s: it was placed", d.Path, half)
		}
	}
}
