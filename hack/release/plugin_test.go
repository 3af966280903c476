package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// TestKrewInstallsTheArchives: by the addresses, checksums and names that it reads in the manifest.
func TestKrewInstallsTheArchives(t *testing.T) {
	o := good()
	o.out = t.TempDir()
	for _, p := range pluginPlatforms() {
		program := filepath.Join(t.TempDir(), plugin+p.suffix())
		if err := os.WriteFile(program, []byte(p.String()), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := writeArchive(o, source{time: time.Unix(1_700_000_000, 0)}, p, program, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeKrew(o); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(o.out, "efs-stunnel.krew.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Spec struct {
			Version, ShortDescription string
			Platforms                 []struct{ URI, SHA256, Bin string }
		}
	}
	if err := yaml.Unmarshal(text, &manifest); err != nil {
		t.Fatal(err)
	}
	if len(manifest.Spec.Platforms) != len(pluginPlatforms()) || manifest.Spec.Version != "v1.2.3" || len(manifest.Spec.ShortDescription) > 50 {
		t.Errorf("got %+v", manifest.Spec)
	}
	for _, p := range manifest.Spec.Platforms {
		name, ok := strings.CutPrefix(p.URI, o.download+"/")
		sum, err := sha256Of(filepath.Join(o.out, name))
		if !ok || err != nil || sum != p.SHA256 {
			t.Errorf("%s has the checksum %s, not %s: %v", p.URI, sum, p.SHA256, err)
		}
	}
}

// TestPluginUsesNoLinuxElsewhere: a package of the product that imports unix calls Linux, and would not compile.
func TestPluginUsesNoLinuxElsewhere(t *testing.T) {
	const unix = "golang.org/x/sys/unix"
	for _, p := range pluginPlatforms() {
		if p.os == "linux" {
			continue
		}
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./cmd/"+plugin)
		cmd.Dir, cmd.Env = "../..", append(os.Environ(), "GOOS="+p.os, "GOARCH="+p.arch, "CGO_ENABLED=0")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", p, err)
		}
		own := 0
		for line := range strings.Lines(string(out)) {
			imports := strings.Fields(line)
			if !strings.HasPrefix(imports[0], "gnuthought.com/efs-stunnel/") {
				continue
			}
			own++
			if slices.Contains(imports, unix) {
				t.Errorf("%s: package %s imports %s", p, imports[0], unix)
			}
		}
		if own == 0 {
			t.Errorf("%s: no package of the product is listed", p)
		}
	}
}
