// Package sbom lists what a file of the release contains, as an SPDX 2.3 document.
package sbom

import (
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/hack/release/internal/debian"
	"gnuthought.com/efs-stunnel/hack/release/internal/licenses"
)

// Subject is the software that the list describes.
type Subject struct {
	Name, Version string
	Namespace     string // an address that only this list has
	Time          time.Time
	Programs      []string // files, built with Go
	Packages      []debian.Package
}

type document struct {
	Version       string         `json:"spdxVersion"`
	License       string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creation       `json:"creationInfo"`
	Packages      []pkg          `json:"packages"`
	Relationships []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type pkg struct {
	Name             string     `json:"name"`
	ID               string     `json:"SPDXID"`
	Version          string     `json:"versionInfo"`
	Download         string     `json:"downloadLocation"`
	FilesAnalyzed    bool       `json:"filesAnalyzed"`
	LicenseConcluded string     `json:"licenseConcluded"`
	LicenseDeclared  string     `json:"licenseDeclared"`
	Copyright        string     `json:"copyrightText"`
	References       []external `json:"externalRefs,omitempty"`
}

type external struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

const (
	documentID = "SPDXRef-DOCUMENT"
	unknown    = "NOASSERTION"
)

// Write returns the document.
func Write(s Subject) ([]byte, error) {
	contents, err := contents(s)
	if err != nil {
		return nil, fmt.Errorf("listing contents of %s: %w", s.Name, err)
	}
	subject := newPackage(s.Name, s.Version, "")
	subject.ID, subject.LicenseDeclared = "SPDXRef-Subject", "Apache-2.0"
	d := document{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: documentID, Name: s.Name + "-" + s.Version, Namespace: s.Namespace,
		Creation:      creation{s.Time.UTC().Format(time.RFC3339), []string{"Organization: efs-stunnel", "Tool: efs-stunnel-release"}},
		Packages:      append([]pkg{subject}, contents...),
		Relationships: []relationship{{documentID, "DESCRIBES", subject.ID}},
	}
	for _, p := range contents {
		d.Relationships = append(d.Relationships, relationship{subject.ID, "CONTAINS", p.ID})
	}
	d.addSources(s.Packages)
	text, err := json.MarshalIndent(d, "", "  ")
	return append(text, '\n'), err
}

// contents returns Go's modules and Debian's packages, each once, sorted.
func contents(s Subject) ([]pkg, error) {
	var all []pkg
	for _, program := range s.Programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return nil, err
		}
		all = append(all, modules(info)...)
	}
	for _, p := range s.Packages {
		all = append(all, newPackage(p.Name, p.Version, debianLocator(p.Name, p.Version, p.Architecture)))
	}
	slices.SortFunc(all, func(a, b pkg) int { return cmp.Compare(a.ID, b.ID) })
	return slices.CompactFunc(all, func(a, b pkg) bool { return a.ID == b.ID }), nil
}

// addSources adds the source packages of Debian's, because advisories name those, and scanners find nothing
// with the name of a library's package alone.
func (d *document) addSources(packages []debian.Package) {
	for _, p := range packages {
		source := newPackage(p.Source, p.SourceVersion, debianLocator(p.Source, p.SourceVersion, "source"))
		source.ID += "-source"
		if !slices.ContainsFunc(d.Packages, func(other pkg) bool { return other.ID == source.ID }) {
			d.Packages = append(d.Packages, source)
		}
		built := relationship{identifier(p.Name, p.Version), "GENERATED_FROM", source.ID}
		if !slices.Contains(d.Relationships, built) {
			d.Relationships = append(d.Relationships, built)
		}
	}
}

// debianLocator returns a package URL: https://github.com/package-url/purl-spec, type deb.
func debianLocator(name, version, architecture string) string {
	return fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s&distro=debian-13", url.QueryEscape(name), url.QueryEscape(version), architecture)
}

// modules returns the modules that a program links, with Go's own library.
func modules(info *debug.BuildInfo) []pkg {
	version := strings.TrimPrefix(strings.Fields(info.GoVersion)[0], "go")
	all := []pkg{newPackage("stdlib", version, "pkg:golang/stdlib@"+version)}
	for _, module := range append([]*debug.Module{&info.Main}, info.Deps...) {
		module = licenses.Replaced(module)
		all = append(all, newPackage(module.Path, module.Version, "pkg:golang/"+module.Path+"@"+url.QueryEscape(module.Version)))
	}
	return all
}

// other are the characters that an identifier may not have.
var other = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

func identifier(name, version string) string {
	return "SPDXRef-" + other.ReplaceAllString(name+"-"+version, "-")
}

func newPackage(name, version, locator string) pkg {
	p := pkg{
		Name: name, Version: version, ID: identifier(name, version),
		Download: unknown, LicenseConcluded: unknown, LicenseDeclared: unknown, Copyright: unknown,
	}
	if locator != "" {
		p.References = []external{{"PACKAGE-MANAGER", "purl", locator}}
	}
	return p
}
