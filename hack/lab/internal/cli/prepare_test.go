package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// goThatBuilds implements the part of the go command that building the programs uses.
const goThatBuilds = `#!/bin/sh
if [ "$1" = env ]; then echo go1.99.0; exit; fi
while [ "$1" != -o ]; do shift; done
: >"$2/server"
: >"$2/components"
`

// Stdout must have nothing but the folder, because a Makefile reads it.
func TestComponentsPrintsTheFolder(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte(goThatBuilds), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	var stdout, stderr bytes.Buffer
	if err := Run(t.Context(), []string{"components"}, &stdout, &stderr); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	dir, _ := strings.CutSuffix(stdout.String(), "\n")
	for _, program := range []string{"etcd", "kube-apiserver"} {
		if _, err := os.Stat(filepath.Join(dir, program)); err != nil {
			t.Error(err)
		}
	}
	if !strings.Contains(stderr.String(), "Kubernetes and etcd") {
		t.Errorf("stderr: %s", &stderr)
	}
}

// Programs that are installed need no packages.
func TestInstalledProgramsPrintTheirPath(t *testing.T) {
	bin := t.TempDir()
	for _, program := range []string{"buildah", "chromium", "mmdebstrap", "qemu-aarch64-static", "strace"} {
		if err := os.WriteFile(filepath.Join(bin, program), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin)
	for command, program := range map[string]string{"arm64": "qemu-aarch64-static", "browser": "chromium", "buildah": "buildah", "strace": "strace"} {
		var stdout, stderr bytes.Buffer
		err := Run(t.Context(), []string{command}, &stdout, &stderr)
		if want := filepath.Join(bin, program) + "\n"; err != nil || stdout.String() != want {
			t.Errorf("%s: %v, %q\n%s", command, err, &stdout, &stderr)
		}
	}
}

// TestPlanNamesWhatIsCached, and what is not, with how long it takes.
func TestPlanNamesWhatIsCached(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte(goThatBuilds), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	var made, stderr bytes.Buffer
	if err := Run(t.Context(), []string{"components"}, &made, &stderr); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	var plan bytes.Buffer
	if err := Run(t.Context(), []string{"plan"}, &plan, &stderr); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(plan.String()) {
		title, now, _ := strings.Cut(line, " min ")
		want := "to be made"
		switch {
		case strings.HasPrefix(title, "PART"):
			continue
		case strings.HasPrefix(title, "Kubernetes"):
			want = "cached"
		}
		if strings.TrimSpace(now) != want {
			t.Errorf("got %q, want %s", line, want)
		}
	}
}
