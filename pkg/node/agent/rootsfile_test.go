package agent

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

func TestSumOfRootsFollowsTheFile(t *testing.T) {
	path, log := filepath.Join(t.TempDir(), "roots.pem"), slog.New(slog.DiscardHandler)
	var roots rootsFile
	if got := roots.read(path, log); got != "" {
		t.Errorf("got %q of no file, want none", got)
	}
	for _, text := range []string{"old root", "old root and new root"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
		if got := roots.read(path, log); got != want {
			t.Errorf("got %q of %q, want %q", got, text, want)
		}
	}
	before := roots.read(path, log)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got := roots.read(path, log); got != before || roots.err == "" {
		t.Errorf("got %q and error %q of a file that is gone, want the sum before and an error", got, roots.err)
	}
}
