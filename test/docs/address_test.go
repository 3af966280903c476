package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// TestTextsOfProgramsNameAnAddress holds that users are not led to a path in a repository that they do not have.
func TestTextsOfProgramsNameAnAddress(t *testing.T) {
	path := regexp.MustCompile(`"[^"]*\bdocs/[a-z/-]+\.md`)
	for _, folder := range []string{"../../cmd", "../../pkg"} {
		err := filepath.WalkDir(folder, func(name string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			text, err := os.ReadFile(name)
			for line := range strings.Lines(string(text)) {
				if !strings.HasPrefix(strings.TrimSpace(line), "//") && path.MatchString(line) {
					t.Errorf("%s: use wellknown.DocsURL in %s", name, strings.TrimSpace(line))
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestAddressIsThatOfTheRunbooks(t *testing.T) {
	rules, err := os.ReadFile("../../deploy/kustomize/components/monitoring/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if want := "/runbooks: " + wellknown.DocsURL + "troubleshoot/alerts.md\n"; !strings.Contains(string(rules), want) {
		t.Errorf("the rules lack %q", want)
	}
}

// placesOfAddress are files and folders with the address of the repository. They cannot use the constant: manifests,
// another module, pages.
var placesOfAddress = []string{
	"deploy/kustomize/components/monitoring/rules.yaml",
	"docs/reference/settings-node.md",
	"docs/tasks/monitoring.md",
	"hack/release/",
	"pkg/api/wellknown/doc.go",
}

// TestNoAddressIsInvented finds addresses of the repository that are not the setting, and places that should use it.
func TestNoAddressIsInvented(t *testing.T) {
	found := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if entry.IsDir() && slices.Contains([]string{".git", "bin", "dist", "testdata", "node_modules"}, entry.Name()) {
			return filepath.SkipDir
		}
		if err != nil || !entry.Type().IsRegular() || strings.HasPrefix(name, "test/docs/address") || strings.HasSuffix(name, ".sum") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, address := range addressesOfRepository(string(text)) {
			switch {
			case address != wellknown.HomeURL && !strings.HasPrefix(address, wellknown.HomeURL+"/"):
				t.Errorf("%s invents %s: the repository's address is %s", name, address, wellknown.HomeURL)
			case placeOf(name) == "":
				t.Errorf("%s has %s: use wellknown.HomeURL, or list the place in this test", name, address)
			}
			found[placeOf(name)] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, place := range placesOfAddress {
		if !found[place] {
			t.Errorf("%s has no address any more", place)
		}
	}
}

// placeOf returns the place that a file is, or is in.
func placeOf(name string) string {
	i := slices.IndexFunc(placesOfAddress, func(place string) bool { return strings.HasPrefix(filepath.ToSlash(name), place) })
	if i < 0 {
		return ""
	}
	return placesOfAddress[i]
}

var (
	webAddress   = regexp.MustCompile("https?://[^\\s\"'`<>()]+")
	imageAddress = regexp.MustCompile(`\b(?:docker\.io|ghcr\.io|quay\.io|public\.ecr\.aws)/[^\s"']*(?:efs-stunnel|efs-manager|efs-worker)\b`)
	ofProject    = regexp.MustCompile(`^https?://(?:gnuthought\.com|(?:[a-z0-9.-]*\.)?gnuthought\.com/|[^/]+/[^?#]*\befs-stunnel\b)`)
)

// addressesOfRepository returns what looks like an address of this project. Examples of users' own use reserved names.
func addressesOfRepository(text string) []string {
	var all []string
	for _, address := range append(webAddress.FindAllString(text, -1), imageAddress.FindAllString(text, -1)...) {
		if strings.HasPrefix(address, wellknown.HomeURL) { // also where it has another name, or that of an example
			all = append(all, strings.TrimRight(address, ".,;:"))
			continue
		}
		reserved := strings.Contains(address, "example.com") || strings.Contains(address, ".example/") || strings.Contains(address, ".invalid")
		if !reserved && (ofProject.MatchString(address) || !strings.HasPrefix(address, "http")) {
			all = append(all, strings.TrimRight(address, ".,;:"))
		}
	}
	return all
}

func TestInventedAddressesAreFound(t *testing.T) {
	for text, want := range map[string]int{
		"see https://github.com/someone/efs-stunnel/issues.":             1,
		"docker pull docker.io/efs-stunnel/efs-manager:v1":               1,
		"`https://gnuthought.com/other`":                                 1,
		"git clone https://forge.example/owner/efs-stunnel":              0,
		"https://github.com/kubernetes-sigs/aws-efs-csi-driver/issues/1": 0,
		"gnuthought.com/efs-stunnel/pkg/efs, a package":                  0,
	} {
		if got := addressesOfRepository(text); len(got) != want {
			t.Errorf("%q: got %q, want %d", text, got, want)
		}
	}
}
