package directories

import (
	"slices"
	"testing"
)

func TestTmpDirsHaveOneUserEach(t *testing.T) {
	w := newFixture(t)
	w.write(".efs-stunnel/tmp-2/leftover", "")
	w.write(".efs-stunnel/tmp-3/leftover", "")
	b := w.begin()
	var names []string
	take := func() *dir {
		d, err := b.tmp.take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, d.path)
		return d
	}
	first, second := take(), take()
	b.tmp.put(first)
	third := take()
	b.tmp.put(second)
	b.tmp.put(third)
	if want := []string{"/.efs-stunnel/tmp", "/.efs-stunnel/tmp-2", "/.efs-stunnel/tmp"}; !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
	w.gone("/.efs-stunnel/tmp-2/leftover", "/.efs-stunnel/tmp-3")
}

func TestTmpDirThatCannotBeMadeIsTriedAgain(t *testing.T) {
	b := newFixture(t).begin()
	first, err := b.tmp.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer b.tmp.put(first)
	b.fs.space = noSpace
	for range 3 {
		if _, err := b.tmp.take(t.Context()); !isNoSpace(err) {
			t.Errorf("got %v", err)
		}
	}
	b.fs.space = nil
	second, err := b.tmp.take(t.Context())
	if err != nil || second.path != "/.efs-stunnel/tmp-2" {
		t.Fatalf("got %v, %v", second, err)
	}
	b.tmp.put(second)
}

// A run that lost the lock has made something aside, or is about to, when the next one begins. Whatever it sends
// after that, the server refuses it.
func TestNothingIsPutInPlaceByARunBeforeThisOne(t *testing.T) {
	w := newFixture(t)
	late := w.begin()
	for _, half := range []string{"made", "not made yet"} {
		d, err := late.tmp.take(t.Context()) // none is put back, so each is another one
		if err != nil {
			t.Fatal(err)
		}
		if half == "made" {
			err = d.Mkdir("half", privateDirectory)
		}
		next := w.begin()
		if _, takeErr := next.tmp.take(t.Context()); err != nil || takeErr != nil {
			t.Fatal(err, takeErr)
		}
		if half != "made" {
			_ = d.Mkdir("half", privateDirectory)
		}
		if err := d.rename("half", late.fs.root, "placed"); err == nil {
			t.Errorf("in %s, %s: it was placed", d.path, half)
		}
	}
}
