// Package licenses finds the licenses of the Go modules that programs contain.
package licenses

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	licenseclassifier "github.com/google/licenseclassifier/v2"
	"github.com/google/licenseclassifier/v2/assets"
)

// Module is a module with its license.
type Module struct {
	Path, Version string
	License       string // an SPDX expression
	Text          []byte // of its files LICENSE, COPYING and NOTICE
}

// allowed returns the licenses that may be part of a program under Apache-2.0, and ask for no more than their
// text and, as MPL-2.0 does, where the unchanged source is.
func allowed() []string {
	return []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0"}
}

// Reader reads the licenses of the modules from which the programs of the working folder are built. Each is read
// once, however many programs have it.
type Reader struct {
	known   *licenseclassifier.Classifier
	folders map[string]string // by path@version
	read    map[string]Module // the same
}

// standard is Go's standard library, as path.
const standard = "std"

// NewReader finds the modules' folders. The working folder must be that of the module from which the programs
// are built.
func NewReader(ctx context.Context) (*Reader, error) {
	folders, err := foldersOf(ctx)
	if err != nil {
		return nil, err
	}
	goRoot, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("finding Go's own license: %w", err)
	}
	folders[standard+"@"+runtime.Version()] = strings.TrimSpace(string(goRoot))
	known, err := assets.DefaultClassifier()
	if err != nil {
		return nil, fmt.Errorf("reading known licenses: %w", err)
	}
	return &Reader{known, folders, map[string]Module{}}, nil
}

// Of returns the modules of the programs and Go's standard library, sorted. A module whose license is unknown
// or not allowed is an error.
func (r *Reader) Of(programs ...string) ([]Module, error) {
	versions := map[string]string{standard: runtime.Version()}
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return nil, fmt.Errorf("reading modules of %s: %w", program, err)
		}
		for _, dependency := range info.Deps {
			m := Replaced(dependency)
			if strings.HasPrefix(m.Path, ".") { // a folder of this repository, whose license is the programs' own
				continue
			}
			versions[m.Path] = m.Version
		}
	}
	return r.modules(versions)
}

func (r *Reader) modules(versions map[string]string) ([]Module, error) {
	var all []Module
	var errs []error
	for _, path := range slices.Sorted(maps.Keys(versions)) {
		m, err := r.module(path, versions[path])
		all, errs = append(all, m), append(errs, err)
	}
	return all, errors.Join(errs...)
}

func (r *Reader) module(path, version string) (Module, error) {
	name := path + "@" + version
	if m, ok := r.read[name]; ok {
		return m, nil
	}
	m, err := read(r.known, r.folders[name], path, version)
	if err == nil {
		r.read[name] = m
	}
	return m, err
}

// Replaced returns the module that a program has for one that it requires.
func Replaced(m *debug.Module) *debug.Module {
	if m.Replace != nil {
		return m.Replace
	}
	return m
}

// foldersOf returns the folders of the module's dependencies, by path@version.
func foldersOf(ctx context.Context) (map[string]string, error) {
	text, err := exec.CommandContext(ctx, "go", "list", "-m", "-json=Path,Version,Dir,Replace", "all").Output()
	if err != nil {
		return nil, fmt.Errorf("listing the folders of modules: %w", err)
	}
	folders := map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(text)); ; {
		var m struct {
			Path, Version, Dir string
			Replace            *struct{ Path, Version string }
		}
		err := decoder.Decode(&m)
		if errors.Is(err, io.EOF) {
			return folders, nil
		}
		if err != nil {
			return nil, fmt.Errorf("listing the folders of modules: %w", err)
		}
		if m.Replace != nil {
			m.Path, m.Version = m.Replace.Path, m.Replace.Version
		}
		folders[m.Path+"@"+m.Version] = m.Dir
	}
}

// Files of a module's root. LICENSE.docs is that of documentation, which is not part of a program.
var (
	licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying)(-.*|\.(txt|md|mit|apache.*|bsd.*))?$`)
	noticeFile  = regexp.MustCompile(`(?i)^notice`)
)

// read reads the license of a module in a folder. Files with several texts name each.
func read(known *licenseclassifier.Classifier, folder, path, version string) (Module, error) {
	m := Module{Path: path, Version: version}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return m, fmt.Errorf("license of %s: %w", path, err)
	}
	var names []string
	for _, entry := range entries {
		isLicense := licenseFile.MatchString(entry.Name())
		if entry.IsDir() || !isLicense && !noticeFile.MatchString(entry.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			return m, fmt.Errorf("license of %s: %w", path, err)
		}
		if isLicense {
			names = append(names, namesOf(known, text)...)
		}
		m.Text = append(append(m.Text, bytes.TrimSpace(text)...), "\n\n"...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	m.License = strings.Join(names, " AND ")
	for _, name := range names {
		if !slices.Contains(allowed(), name) {
			return m, fmt.Errorf("license of %s: %s is none of %s", path, name, strings.Join(allowed(), ", "))
		}
	}
	if len(names) == 0 {
		return m, fmt.Errorf("license of %s: none is known among the files of %s", path, folder)
	}
	return m, nil
}

func namesOf(known *licenseclassifier.Classifier, text []byte) (names []string) {
	for _, match := range known.Match(text).Matches {
		if match.MatchType == "License" {
			names = append(names, match.Name)
		}
	}
	return names
}

// Text returns the texts that have to be distributed with programs that contain the modules.
func Text(modules []Module) []byte {
	var b bytes.Buffer
	for _, m := range modules {
		fmt.Fprintf(&b, "%s\n%s %s: %s\nSource: https://pkg.go.dev/%[2]s@%[3]s\n\n%[5]s", strings.Repeat("=", 80), m.Path, cmp.Or(m.Version, "-"), m.License, m.Text)
	}
	return b.Bytes()
}
