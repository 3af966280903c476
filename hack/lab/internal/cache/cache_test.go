package cache

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

func TestFolderIsMadeOnceByManyCallers(t *testing.T) {
	c := Cache{t.TempDir()}
	var calls atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			dir, _, err := c.Folder(t.Context(), "thing", Key("a"), func(_ context.Context, dir string) error {
				calls.Add(1)
				return os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600)
			})
			if err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(filepath.Join(dir, "file")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if calls.Load() != 1 {
		t.Errorf("made %d times", calls.Load())
	}
}

func TestFailedMakeLeavesNothing(t *testing.T) {
	c := Cache{t.TempDir()}
	boom := errors.New("boom")
	dir, _, err := c.Folder(t.Context(), "thing", "k", func(context.Context, string) error { return boom })
	if !errors.Is(err, boom) || exists(dir) {
		t.Errorf("got %v, and folder exists: %v", err, exists(dir))
	}
	_, made, err := c.Folder(t.Context(), "thing", "k", func(context.Context, string) error { return nil })
	if err != nil || !made {
		t.Errorf("second try: made %v, %v", made, err)
	}
}

func TestKeyTellsInputsApart(t *testing.T) {
	if Key("ab", "c") == Key("a", "bc") || Key("a") == Key("a", "") {
		t.Error("different inputs give one key")
	}
}
