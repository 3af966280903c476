package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/hack/release/internal/archive"
	"gnuthought.com/efs-stunnel/hack/release/internal/sbom"
)

const plugin = "kubectl-efs_stunnel"

// pluginPlatforms returns the platforms on which people run kubectl.
func pluginPlatforms() []platform {
	return []platform{
		{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"},
	}
}

// archiveName returns the name of the file that users of a platform download.
func archiveName(o options, p platform) string {
	ending := ".tar.gz"
	if p.os == "windows" {
		ending = ".zip"
	}
	return fmt.Sprintf("%s-%s-%s-%s%s", plugin, o.number(), p.os, p.arch, ending)
}

// buildPlugins writes an archive for each platform, the lists of what they contain, and krew's manifest.
func buildPlugins(ctx context.Context, o options, s source) error {
	for _, p := range pluginPlatforms() {
		folder, err := build(ctx, o, p, plugin)
		if err != nil {
			return err
		}
		program := filepath.Join(folder, plugin+p.suffix())
		files, err := s.withLicenses("", program)
		if err != nil {
			return fmt.Errorf("plugin for %s: %w", p, err)
		}
		if err := writeArchive(o, s, p, program, files); err != nil {
			return err
		}
		name := fmt.Sprintf("%s-%s-%s-%s", plugin, o.number(), p.os, p.arch)
		if err := writeList(o, s, name, sbom.Subject{Name: plugin, Programs: []string{program}}); err != nil {
			return err
		}
	}
	return writeKrew(o)
}

// writeArchive writes the archive with the program and other files.
func writeArchive(o options, s source, p platform, program string, files []archive.File) error {
	data, err := os.ReadFile(program)
	if err != nil {
		return fmt.Errorf("writing plugin for %s: %w", p, err)
	}
	files = append(files, archive.File{Name: filepath.Base(program), Data: data, Executable: true})
	var b bytes.Buffer
	write := archive.TarGz
	if p.os == "windows" {
		write = archive.Zip
	}
	if err := write(&b, files, s.time); err != nil {
		return fmt.Errorf("writing plugin for %s: %w", p, err)
	}
	if err := os.WriteFile(filepath.Join(o.out, archiveName(o, p)), b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing plugin for %s: %w", p, err)
	}
	return nil
}

// writeList writes what a file of the release contains.
func writeList(o options, s source, name string, subject sbom.Subject) error {
	file := name + ".spdx.json"
	subject.Version, subject.Time, subject.Namespace = o.version, s.time, o.download+"/"+file
	text, err := sbom.Write(subject)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(o.out, file), text, 0o644); err != nil {
		return fmt.Errorf("writing list of contents: %w", err)
	}
	return nil
}

// writeImageLists writes what each image contains, for each architecture.
func writeImageLists(o options, s source, all []built) error {
	for _, b := range all {
		for _, architecture := range imageArchitectures() {
			subject := sbom.Subject{Name: b.name, Packages: b.packages[architecture]}
			for _, program := range b.image.programs {
				subject.Programs = append(subject.Programs, filepath.Join(b.programs[architecture], program))
			}
			name := fmt.Sprintf("%s-%s-linux-%s", b.name, o.number(), architecture)
			if err := writeList(o, s, name, subject); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeKrew writes the manifest by which krew, kubectl's plugin manager, installs the plugin.
func writeKrew(o options) error {
	var platforms []map[string]any
	for _, p := range pluginPlatforms() {
		name := archiveName(o, p)
		sum, err := sha256Of(filepath.Join(o.out, name))
		if err != nil {
			return err
		}
		platforms = append(platforms, map[string]any{
			"selector": map[string]any{"matchLabels": map[string]string{"os": p.os, "arch": p.arch}},
			"uri":      o.download + "/" + name,
			"sha256":   sum,
			"bin":      plugin + p.suffix(),
		})
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
		"kind":       "Plugin",
		"metadata":   map[string]string{"name": "efs-stunnel"},
		"spec": map[string]any{
			"version":          o.version,
			"homepage":         "https://gnuthought.com/efs-stunnel",
			"shortDescription": "Explain and repair efs-stunnel storage",
			"description": "Shows the state of an efs-stunnel installation, names the cause of a problem and what\n" +
				"mends it, checks clusters before the installation, and restores deleted directories.\n",
			"platforms": platforms,
		},
	})
	if err != nil {
		return fmt.Errorf("writing krew's manifest: %w", err)
	}
	if err := os.WriteFile(filepath.Join(o.out, "efs-stunnel.krew.yaml"), text, 0o644); err != nil {
		return fmt.Errorf("writing krew's manifest: %w", err)
	}
	return nil
}
