package layout_test

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/test/layout"
)

const root = "../.." // of the repository

func TestProductFollowsTheRules(t *testing.T) {
	pkgs := load(t, ".", "-json=Dir,Deps")
	findings := layout.Check(pkgs, append(layout.SourceRules(), layout.DirectionRules(pkgs)...))
	for _, finding := range append(findings, layout.CheckSize(pkgs)...) {
		t.Error(finding)
	}
}

func TestToolsFollowTheRules(t *testing.T) {
	for _, module := range []string{"hack/lab", "hack/release", "test/bench", "test/histories"} {
		pkgs := load(t, module, "-find", "-json=Dir") // -find: their many modules need not be here
		for _, finding := range layout.Check(pkgs, layout.SourceRules()) {
			t.Error(finding)
		}
	}
}

// load reads the module in a folder of the repository. The files are read from the disk, so that no
// build constraint hides one and go test's cache observes a new one; the rest is from go list.
func load(t *testing.T, module string, flags ...string) []layout.Package {
	t.Helper()
	pkgs := walk(t, module)
	for _, listed := range goList(t, module, flags...) {
		pkg, ok := pkgs[listed.Dir]
		if !ok {
			t.Fatalf("go list has a package in %s, where no Go file was found", listed.Dir)
		}
		pkg.Deps = listed.Deps
	}
	if len(pkgs) == 0 {
		t.Fatalf("no package in module %s", module)
	}
	var all []layout.Package
	for _, dir := range slices.Sorted(maps.Keys(pkgs)) {
		all = append(all, *pkgs[dir])
	}
	return all
}

type listed struct {
	Dir  string
	Deps []string
}

func goList(t *testing.T, module string, flags ...string) []listed {
	t.Helper()
	args := slices.Concat([]string{"list", "-C", filepath.Join(root, module)}, flags, []string{"./..."})
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Stderr = t.Output()
	stdout, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v", strings.Join(args, " "), err)
	}
	var pkgs []listed
	for decoder := json.NewDecoder(strings.NewReader(string(stdout))); ; {
		var pkg listed
		if err := decoder.Decode(&pkg); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, pkg)
	}
}

// walk returns the packages of a module by their folder's absolute path.
func walk(t *testing.T, module string) map[string]*layout.Package {
	t.Helper()
	top, err := filepath.Abs(filepath.Join(root, module))
	if err != nil {
		t.Fatal(err)
	}
	pkgs := map[string]*layout.Package{}
	visit := func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name != top && isOutside(name) {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		source, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		dir := filepath.Dir(name)
		if pkgs[dir] == nil {
			below, err := filepath.Rel(top, dir)
			if err != nil {
				return err
			}
			importPath := path.Join(layout.Module, module, filepath.ToSlash(below))
			pkgs[dir] = &layout.Package{ImportPath: importPath}
		}
		pkgs[dir].Files = append(pkgs[dir].Files, parse(t, filepath.Base(name), source))
		return nil
	}
	if err := filepath.WalkDir(top, visit); err != nil {
		t.Fatal(err)
	}
	return pkgs
}

// isOutside reports whether the go command skips a folder: hidden ones, test data, and other modules.
func isOutside(dir string) bool {
	base := filepath.Base(dir)
	if base == "testdata" || base == "vendor" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return true
	}
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}
