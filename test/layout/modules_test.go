package layout_test

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"
)

// moduleFile is the output of go mod edit -json.
type moduleFile struct {
	Require []struct{ Path, Version string }
	Replace []struct {
		Old, New struct{ Path, Version string }
	}
}

// TestModulesShareTheirVersions: with another version of one library, everything that imports it is compiled again,
// which is half of Kubernetes.
func TestModulesShareTheirVersions(t *testing.T) {
	product := versions(t, ".")
	for _, module := range []string{"hack/lab", "hack/lab/components", "hack/release", "test/bench", "test/histories"} {
		for path, version := range versions(t, module) {
			if want, shared := product[path]; shared && version != want {
				t.Errorf("%s requires %s %s, and the product %s: go get -C . or there, whichever is older, then go mod tidy", module, path, version, want)
			}
		}
	}
}

// versions returns the versions that a module requires, by path.
func versions(t *testing.T, module string) map[string]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "-C", filepath.Join(root, module), "mod", "edit", "-json")
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var file moduleFile
	if err := json.Unmarshal(out, &file); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, r := range file.Require {
		all[r.Path] = r.Version
	}
	for _, r := range file.Replace {
		if _, required := all[r.Old.Path]; required && r.New.Version != "" {
			all[r.Old.Path] = r.New.Version
		}
	}
	return all
}
