package sbom

import (
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/hack/release/internal/debian"
)

// TestListHasModulesAndPackages of this test's own program.
func TestListHasModulesAndPackages(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	subject := Subject{
		Name: "image", Version: "1.2.3", Namespace: "https://example.com/image", Time: time.Unix(1_700_000_000, 0),
		Programs: []string{program, program},
		Packages: []debian.Package{
			{Name: "libssl3t64", Version: "3.5.1-1+b1", Architecture: "amd64", Source: "openssl", SourceVersion: "3.5.1-1"},
			{Name: "libssl3t64", Version: "3.5.1-1+b1", Architecture: "arm64", Source: "openssl", SourceVersion: "3.5.1-1"},
			{Name: "stunnel4", Version: "3:5.68-2+deb12u1", Architecture: "arm64", Source: "stunnel4", SourceVersion: "3:5.68-2+deb12u1"},
		},
	}
	text, err := Write(subject)
	if err != nil {
		t.Fatal(err)
	}
	var got document
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	var locators []string
	ids := map[string]int{}
	for _, p := range got.Packages {
		ids[p.ID]++
		for _, r := range p.References {
			locators = append(locators, r.Locator)
		}
	}
	for _, want := range []string{
		"pkg:deb/debian/stunnel4@3%3A5.68-2%2Bdeb12u1?arch=arm64&distro=debian-13",
		"pkg:deb/debian/stunnel4@3%3A5.68-2%2Bdeb12u1?arch=source&distro=debian-13",
		"pkg:deb/debian/openssl@3.5.1-1?arch=source&distro=debian-13",
	} {
		if !slices.Contains(locators, want) {
			t.Errorf("%q lacks %s", locators, want)
		}
	}
	built := relationship{"SPDXRef-libssl3t64-3.5.1-1-b1", "GENERATED_FROM", "SPDXRef-openssl-3.5.1-1-source"}
	if !slices.Contains(got.Relationships, built) {
		t.Errorf("%v lacks %v", got.Relationships, built)
	}
	if !slices.ContainsFunc(locators, func(l string) bool { return len(l) > 20 && l[:20] == "pkg:golang/stdlib@1." }) {
		t.Errorf("%q lacks Go's own library", locators)
	}
	for id, count := range ids {
		if count > 1 {
			t.Errorf("%d packages are %s", count, id)
		}
	}
	if len(got.Relationships) != len(got.Packages) {
		t.Errorf("%d relationships of %d packages", len(got.Relationships), len(got.Packages))
	}
	if got.Creation.Created != "2023-11-14T22:13:20Z" {
		t.Errorf("it was made at %s", got.Creation.Created)
	}
}

func TestProgramsWithoutModulesAreRefused(t *testing.T) {
	if _, err := Write(Subject{Programs: []string{"sbom.go"}}); err == nil {
		t.Error("a text is taken for a program")
	}
}
