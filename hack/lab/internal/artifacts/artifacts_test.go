package artifacts

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestKubernetesVersionComesFromTheModule(t *testing.T) {
	mod, err := os.ReadFile(filepath.Join("..", "..", "components", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	version, err := kubernetesVersion(string(mod))
	if err != nil || !strings.HasPrefix(version, "v1.37.") {
		t.Errorf("got %q, %v", version, err)
	}
	if _, err := kubernetesVersion("require k8s.io/api v0.36.3"); err == nil {
		t.Error("a version was found where there is none")
	}
	if got := linkerFlags("v1.36.3"); !strings.Contains(got, "gitVersion=v1.36.3 ") || !strings.Contains(got, "gitMinor=36") {
		t.Errorf("linker flags %s", got)
	}
}

// TestEachVersionOfKubernetesHasAModule that requires it, and no other can be asked for.
func TestEachVersionOfKubernetesHasAModule(t *testing.T) {
	components := filepath.Join("..", "..", "components")
	for wanted, prefix := range map[string]string{"": "v1.37.", "1.34": "v1.34.", "1.35": "v1.35.", "1.36": "v1.36."} {
		file, err := Maker{Kubernetes: wanted}.modFile(components)
		if err != nil {
			t.Fatal(err)
		}
		mod, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if version, err := kubernetesVersion(string(mod)); err != nil || !strings.HasPrefix(version, prefix) {
			t.Errorf("%s: got %q, %v, want %s", file, version, err, prefix)
		}
	}
	if _, err := (Maker{Kubernetes: "1.20"}).modFile(components); err == nil || !strings.Contains(err.Error(), "want one of 1.34, 1.35, 1.36,") {
		t.Errorf("version 1.20: got %v, want an error that lists the versions", err)
	}
}

func TestAbsoluteLinksStayInTheExtractedRoot(t *testing.T) {
	root := t.TempDir()
	for dir := range strings.FieldsSeq("lib lib64") {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "lib", "ld.so"), []byte("the root's"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/lib/ld.so", filepath.Join(root, "lib64", "ld.so")); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "sub", "ld.so")
	if err := copyExecutable(root, "/lib64/ld.so", copied); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(copied)
	if err != nil || string(got) != "the root's" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestProgramsOfARootRunWithItsLoader(t *testing.T) {
	for release, folder := range map[string]string{"Debian 12": "lib", "Debian 13": "usr/lib"} {
		t.Run(release, func(t *testing.T) {
			root := t.TempDir()
			libraries := filepath.Join(root, folder, "x86_64-linux-gnu")
			if err := os.MkdirAll(libraries, 0o755); err != nil {
				t.Fatal(err)
			}
			loader := filepath.Join(libraries, "ld-linux-x86-64.so.2")
			if err := os.WriteFile(loader, nil, 0o755); err != nil {
				t.Fatal(err)
			}
			got := Command(root, "usr/bin/program", "usr/lib/program")
			folders := []string{"lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", "usr/lib/program"}
			for i, f := range folders {
				folders[i] = filepath.Join(root, f)
			}
			want := []string{loader, "--library-path", strings.Join(folders, ":"), filepath.Join(root, "usr/bin/program")}
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}
