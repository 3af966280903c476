package server

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFolderMustBeTheRootOfAFileSystem(t *testing.T) {
	const disk = "40 30 253:1 / /data rw,relatime shared:1 - ext4 /dev/vdb rw\n"
	tests := map[string]struct {
		mounts string
		ok     bool
		want   string // in the error
	}{
		"a disk":                         {disk, true, ""},
		"a folder of the node":           {"40 30 8:1 /var/lib/volumes/pvc-1 /data rw - ext4 /dev/sda1 rw\n", false, "it is the folder /var/lib/volumes/pvc-1"},
		"a folder of a disk":             {"40 30 253:1 /folder /data rw - xfs /dev/vdb rw\n", false, "--shared-file-system"},
		"no mount":                       {"30 1 0:1 / / rw - overlay overlay rw\n", false, "--shared-file-system"},
		"another folder":                 {strings.ReplaceAll(disk, "/data", "/data2"), false, "--shared-file-system"},
		"a folder mounted over a disk":   {disk + "41 40 8:1 /folder /data rw - ext4 /dev/sda1 rw\n", false, "/folder"},
		"a disk mounted over a folder":   {"39 30 8:1 /folder /data rw - ext4 /dev/sda1 rw\n" + disk, true, ""},
		"a folder with a space":          {"40 30 8:1 /a\\040b /data rw - ext4 /dev/sda1 rw\n", false, "/a b"},
		"lines that are no mount points": {"\n1 2 3\n", false, "--shared-file-system"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := checkMount(tt.mounts, "/data")
			if (err == nil) != tt.ok || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestSharedFolderIsRefused(t *testing.T) {
	err := Run(t.Context(), Options{Data: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if !errors.Is(err, errShared) {
		t.Errorf("got %v", err)
	}
}

func TestFoldersOfClientsAreNotFollowed(t *testing.T) {
	link := filepath.Join(t.TempDir(), "recovery")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	if err := makeFolder(link, 0o700); err == nil {
		t.Error("a link is taken for a folder")
	}
}

// TestServerKeepsItsID has what a client may have put in the place of the id.
func TestServerKeepsItsID(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "server-id")
	first, err := readID(path)
	if err != nil || !idRule.MatchString(first) {
		t.Fatalf("got %q, %v", first, err)
	}
	if again, err := readID(path); err != nil || again != first {
		t.Errorf("got %q, %v; want %q as before", again, err, first)
	}
	secret := filepath.Join(folder, "secret")
	for name, put := range map[string]func() error{
		"another text": func() error { return os.WriteFile(path, []byte(`A"; Squash = `+first), 0o600) },
		"a link":       func() error { return os.Symlink(secret, path) },
		"a folder":     func() error { return os.MkdirAll(filepath.Join(path, "more"), 0o700) },
	} {
		if err := errors.Join(os.RemoveAll(path), os.WriteFile(secret, []byte(first), 0o600), put()); err != nil {
			t.Fatal(err)
		}
		got, err := readID(path)
		if err != nil || got == first || !idRule.MatchString(got) {
			t.Errorf("%s: got %q, %v; want a new id", name, got, err)
		}
		if info, err := os.Lstat(path); err != nil || info.Mode() != fs.FileMode(0o400) {
			t.Errorf("%s: left %v, %v", name, info, err)
		}
	}
}
