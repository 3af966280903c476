// Package debian downloads and unpacks Debian packages of any architecture. Nothing of them is run, and
// nothing on this machine is changed.
package debian

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Suite is the release of Debian.
const Suite = "trixie"

// Sources are the package sources of the release, as apt reads them.
const Sources = `deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie main
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie-updates main
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian-security trixie-security main
`

// Package is an unpacked package.
type Package struct {
	Name, Version, Architecture string
	Source, SourceVersion       string // the source package, which Debian's security advisories name
	Control                     string // its fields, as the package database has them
	Folder                      string // its files
}

// Fetch downloads the packages with all that they depend on into a folder of the caller, which may keep it
// to download less the next time, and unpacks them.
func Fetch(ctx context.Context, folder, architecture string, names ...string) ([]Package, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, fmt.Errorf("fetching Debian packages: %w", err)
	}
	if err := prepare(folder); err != nil {
		return nil, fmt.Errorf("fetching Debian packages: %w", err)
	}
	if _, err := run(ctx, "apt-get", append(options(folder, architecture), "update")...); err != nil {
		return nil, fmt.Errorf("fetching lists of Debian packages: %w", err)
	}
	install := append(options(folder, architecture), "--yes", "--no-install-recommends", "install")
	if _, err := run(ctx, "apt-get", slices.Concat(install, []string{"--download-only"}, names)...); err != nil {
		return nil, fmt.Errorf("fetching Debian packages: %w", err)
	}
	archives, err := filepath.Glob(filepath.Join(folder, "cache/archives/*.deb"))
	if err != nil || len(archives) == 0 {
		return nil, errors.Join(errors.New("fetching Debian packages: apt-get downloaded none"), err)
	}
	var packages []Package
	for _, archive := range archives {
		p, err := unpack(ctx, archive, filepath.Join(folder, "root"))
		if err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
	return packages, nil
}

// prepare makes what apt-get expects. The archives are removed, because those of another version may be
// among them.
func prepare(folder string) error {
	for _, old := range []string{"cache", "root"} {
		if err := os.RemoveAll(filepath.Join(folder, old)); err != nil {
			return err
		}
	}
	for _, made := range []string{"lists/partial", "cache/archives/partial", "root"} {
		if err := os.MkdirAll(filepath.Join(folder, made), 0o755); err != nil {
			return err
		}
	}
	return errors.Join(
		os.WriteFile(filepath.Join(folder, "status"), nil, 0o644), // nothing is installed
		os.WriteFile(filepath.Join(folder, "sources.list"), []byte(Sources), 0o644),
	)
}

func options(folder, architecture string) []string {
	var all []string
	for _, option := range []string{
		"APT::Architecture=" + architecture,
		"APT::Architectures=" + architecture,
		"APT::Architectures::=" + architecture,
		"APT::Sandbox::User=", // the folder may be readable to this user only
		"Acquire::Languages=none",
		"Debug::NoLocking=true", // the lock is this machine's
		"Dir::State=" + folder,
		"Dir::State::lists=" + filepath.Join(folder, "lists"),
		"Dir::State::status=" + filepath.Join(folder, "status"),
		"Dir::Cache=" + filepath.Join(folder, "cache"),
		"Dir::Cache::archives=" + filepath.Join(folder, "cache/archives"),
		"Dir::Etc::sourcelist=" + filepath.Join(folder, "sources.list"),
		"Dir::Etc::sourceparts=/dev/null",
		"Dir::Etc::preferences=/dev/null",
		"Dir::Etc::preferencesparts=/dev/null",
	} {
		all = append(all, "-o", option)
	}
	return append(all, "-qq")
}

func unpack(ctx context.Context, archive, root string) (Package, error) {
	control, err := run(ctx, "dpkg-deb", "--field", archive)
	if err != nil {
		return Package{}, fmt.Errorf("reading package %s: %w", archive, err)
	}
	p, err := parse(control)
	if err != nil {
		return Package{}, fmt.Errorf("reading package %s: %w", archive, err)
	}
	p.Folder = filepath.Join(root, p.Name)
	if _, err := run(ctx, "dpkg-deb", "--extract", archive, p.Folder); err != nil {
		return Package{}, fmt.Errorf("unpacking package %s: %w", archive, err)
	}
	return p, nil
}

// parse reads the control file of a package. The package database also has a status, without which
// scanners do not count it.
func parse(control string) (Package, error) {
	fields := map[string]string{}
	for line := range strings.Lines(control) {
		if key, value, ok := strings.Cut(line, ":"); ok && !strings.HasPrefix(line, " ") {
			fields[key] = strings.TrimSpace(value)
		}
	}
	first, rest, _ := strings.Cut(control, "\n")
	p := Package{
		Name: fields["Package"], Version: fields["Version"], Architecture: fields["Architecture"],
		Control: first + "\nStatus: install ok installed\n" + rest,
	}
	if p.Name == "" || p.Version == "" || p.Architecture == "" || !strings.HasPrefix(first, "Package:") {
		return Package{}, fmt.Errorf("want the fields Package, Version and Architecture in %q", control)
	}
	p.Source, p.SourceVersion = sourceOf(p, fields["Source"])
	return p, nil
}

// sourceOf reads the field Source: a name, then the version in parentheses if it is another one. Packages that
// have the name of their source lack the field.
func sourceOf(p Package, field string) (name, version string) {
	name, version, _ = strings.Cut(field, " ")
	return cmp.Or(name, p.Name), cmp.Or(strings.Trim(version, "()"), p.Version)
}

func run(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("running %s: %w: %s", name, err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
