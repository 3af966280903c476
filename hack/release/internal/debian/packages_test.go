package debian

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestControlGetsAStatus(t *testing.T) {
	got, err := parse("Package: libssl3\nSource: openssl (3.0.22-1)\nVersion: 3.0.22-1+b1\nArchitecture: arm64\nDescription: TLS\n more: of it\n")
	want := Package{
		Name: "libssl3", Version: "3.0.22-1+b1", Architecture: "arm64", Source: "openssl", SourceVersion: "3.0.22-1",
		Control: "Package: libssl3\nStatus: install ok installed\nSource: openssl (3.0.22-1)\nVersion: 3.0.22-1+b1\nArchitecture: arm64\nDescription: TLS\n more: of it\n",
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v, package mismatch (-want +got):\n%s", err, diff)
	}
	if _, err := parse("Package: libssl3\n"); err == nil {
		t.Error("a package without a version is accepted")
	}
}

func TestSourcesOfPackages(t *testing.T) {
	p := Package{Name: "libssl3", Version: "3.0.22-1+b1"}
	for field, want := range map[string][2]string{
		"":                   {"libssl3", "3.0.22-1+b1"},
		"openssl":            {"openssl", "3.0.22-1+b1"},
		"openssl (3.0.22-1)": {"openssl", "3.0.22-1"},
	} {
		if name, version := sourceOf(p, field); name != want[0] || version != want[1] {
			t.Errorf("%q: got %s %s, want %s", field, name, version, want)
		}
	}
}

// TestLinksLeadThroughPackages: a library's name is a link, and the loader's link is absolute. Debian 13 has
// below /usr what programs open in /lib.
func TestLinksLeadThroughPackages(t *testing.T) {
	root := Root{{Name: "a", Folder: t.TempDir()}, {Name: "b", Folder: t.TempDir()}}
	for _, p := range root {
		if err := os.MkdirAll(filepath.Join(p.Folder, "lib"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root[1].Folder, "lib/file.1"), []byte("content"), 0o644); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"relative": "file.1", "absolute": "/lib/relative", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(root[0].Folder, "lib", link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(root[0].Folder, "usr/lib64"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../lib/file.1", filepath.Join(root[0].Folder, "usr/lib64/loader")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root[1].Folder, "usr/lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root[1].Folder, "usr/lib/file.1"), []byte("content"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/lib/relative", "/lib/absolute", "/lib64/loader"} {
		got, err := root.Read(name)
		if err != nil || got.Path != name || string(got.Data) != "content" || got.Package.Name != "b" {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
	for _, name := range []string{"/lib/loop", "/lib/none"} {
		if _, err := root.Read(name); err == nil {
			t.Errorf("%s is read", name)
		}
	}
}
