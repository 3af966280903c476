package debian

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFilesHaveTheModesOfTheirPackages, also through a link: an image whose program is not executable does not start.
func TestFilesHaveTheModesOfTheirPackages(t *testing.T) {
	folder := t.TempDir()
	for name, mode := range map[string]os.FileMode{"program": 0o755, "library.so.1": 0o644} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("\x7fELF"), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("library.so.1", filepath.Join(folder, "library.so")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"/program": true, "/library.so.1": false, "/library.so": false} {
		if file, err := (Root{{Folder: folder}}).Read(name); err != nil || file.Executable != want {
			t.Errorf("%s is executable: %t, %v; want %t", name, file.Executable, err, want)
		}
	}
}
