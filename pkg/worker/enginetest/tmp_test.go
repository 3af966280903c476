package enginetest

import (
	"slices"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

func TestTmpDirsHaveOneUserEach(t *testing.T) {
	w := newFixture(t)
	w.write(".efs-stunnel/tmp-2/leftover", "")
	w.write(".efs-stunnel/tmp-3/leftover", "")
	b := w.begin()
	var names []string
	take := func() *fsroot.Dir {
		d, err := b.Tmp.Take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, d.Path)
		return d
	}
	first, second := take(), take()
	b.Tmp.Put(first)
	third := take()
	b.Tmp.Put(second)
	b.Tmp.Put(third)
	if want := []string{"/.efs-stunnel/tmp", "/.efs-stunnel/tmp-2", "/.efs-stunnel/tmp"}; !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
	w.gone("/.efs-stunnel/tmp-2/leftover", "/.efs-stunnel/tmp-3")
}

func TestTmpDirThatCannotBeMadeIsTriedAgain(t *testing.T) {
	b := newFixture(t).begin()
	first, err := b.Tmp.Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Tmp.Put(first)
	b.System.Space = noSpace
	for range 3 {
		if _, err := b.Tmp.Take(t.Context()); !fsroot.IsNoSpace(err) {
			t.Errorf("got %v", err)
		}
	}
	b.System.Space = nil
	second, err := b.Tmp.Take(t.Context())
	if err != nil || second.Path != "/.efs-stunnel/tmp-2" {
		t.Fatalf("got %v, %v", second, err)
	}
	b.Tmp.Put(second)
}

// A run that lost the lock has made something aside, or is about to, when the next one begins. Whatever it sends
// after that, the server refuses it.
func TestNothingIsPutInPlaceByARunBeforeThisOne(t *testing.T) {
	w := newFixture(t)
	late := w.begin()
	for _, half := range []string{"made", "not made yet"} {
		d, err := late.Tmp.Take(t.Context()) // none is put back, so each is another one
		if err != nil {
			t.Fatal(err)
		}
		if half == "made" {
			err = d.Mkdir("half", fsroot.PrivateDirectory)
		}
		next := w.begin()
		if _, takeErr := next.Tmp.Take(t.Context()); err != nil || takeErr != nil {
			t.Fatal(err, takeErr)
		}
		if half != "made" {
			_ = d.Mkdir("half", fsroot.PrivateDirectory)
		}
		if err := d.RenameTo("half", late.System.Root, "placed"); err == nil {
			t.Errorf("in %s, %s: it was placed", d.Path, half)
		}
	}
}
