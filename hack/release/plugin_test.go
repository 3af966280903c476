package main

import (
	"os"
	"path/filepath"
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
