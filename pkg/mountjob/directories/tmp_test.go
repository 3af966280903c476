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
	w.gone("/.efs-stunnel/tmp-2/leftover")
	w.there("/.efs-stunnel/tmp-3/leftover")
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
