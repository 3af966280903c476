package licenses

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/licenseclassifier/v2/assets"
)

func TestLicensesOfModules(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../..").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	reader, err := NewReader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	modules, err := reader.Of(program)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"std": "BSD-3-Clause", "github.com/google/licenseclassifier/v2": "Apache-2.0"}
	for _, m := range modules {
		if license, ok := want[m.Path]; ok && license == m.License && len(m.Text) > 1000 {
			delete(want, m.Path)
		}
	}
	if len(want) > 0 {
		t.Errorf("not found: %v in %d modules", want, len(modules))
	}
	if text := string(Text(modules)); !strings.Contains(text, "\nstd "+runtime.Version()+": BSD-3-Clause\nSource: https://pkg.go.dev/std@"+runtime.Version()+"\n\nCopyright") {
		t.Errorf("the text lacks Go's license:\n%.1000s", text)
	}
}

// TestLicensesOfTheProduct finds a dependency that would end a release before one is made.
func TestLicensesOfTheProduct(t *testing.T) {
	t.Chdir("../../../..")
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}", "./cmd/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		versions[path] = version
	}
	reader, err := NewReader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if modules, err := reader.modules(versions); err != nil || len(modules) < 50 {
		t.Errorf("%d modules: %v", len(modules), err)
	}
}

func TestLicensesThatAreRefused(t *testing.T) {
	known, err := assets.DefaultClassifier()
	if err != nil {
		t.Fatal(err)
	}
	mit, errMIT := assets.ReadLicenseFile("License/MIT/pristine.txt")
	gpl, errGPL := assets.ReadLicenseFile("License/GPL-2.0/license.txt")
	if err := errors.Join(errMIT, errGPL); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct{ file, text, want string }{
		"allowed":   {"LICENSE.md", string(mit), ""},
		"another":   {"COPYING", string(gpl), "GPL-2.0"},
		"no text":   {"LICENSE", "all rights reserved", "none is known"},
		"no file":   {"README", string(mit), "none is known"},
		"two texts": {"LICENSE", string(mit) + "\n" + string(gpl), "GPL-2.0"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			if err := os.WriteFile(filepath.Join(folder, tt.file), []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := read(known, folder, "example.com/m", "v1.0.0")
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
