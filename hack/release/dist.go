package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/hack/release/internal/chart"
	"gnuthought.com/efs-stunnel/hack/release/internal/manifests"
)

const sumsFile = "SHA256SUMS"

// makeRelease writes the folder. What can fail at once comes before what takes minutes.
func makeRelease(ctx context.Context, o options) error {
	notes, err := readNotes(o.version)
	if err != nil {
		return err
	}
	if err := findSigner(o.key); err != nil {
		return err
	}
	s, err := readSource(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(o.out), os.MkdirAll(o.out, 0o755)); err != nil {
		return fmt.Errorf("emptying %s: %w", o.out, err)
	}
	built, err := buildImages(ctx, o, s, imageArchitectures()...)
	if err != nil {
		return err
	}
	if err := writeImageLists(o, s, built); err != nil {
		return err
	}
	if err := writeManifests(o, s.time, built); err != nil {
		return err
	}
	if err := buildPlugins(ctx, o, s); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(o.out, "release-notes.md"), []byte(notes), 0o644); err != nil {
		return fmt.Errorf("writing notes: %w", err)
	}
	if err := writeSums(o.out); err != nil {
		return err
	}
	return sign(ctx, o.out, o.key)
}

// writeManifests writes the chart, and one file for each way to install with kubectl alone.
func writeManifests(o options, at time.Time, built []built) error {
	sources, err := manifests.Read("deploy/kustomize")
	if err != nil {
		return err
	}
	names := references(built)
	base, err := sources.Base(names)
	if err != nil {
		return err
	}
	text, err := base.AsYaml()
	if err != nil {
		return fmt.Errorf("rendering the base: %w", err)
	}
	files := map[string][]byte{"install.yaml": text}
	for _, overlay := range []string{"eks", "openshift", "standalone"} {
		if files["install-"+overlay+".yaml"], err = sources.Overlay(overlay, names); err != nil {
			return err
		}
	}
	if err := writeChart(o, at, chart.Spec{Source: sources, Images: names, Registry: o.registry}); err != nil {
		return err
	}
	for name, text := range files {
		header := fmt.Sprintf("# efs-stunnel %s, from deploy/kustomize by make release.\n", o.version)
		if err := os.WriteFile(filepath.Join(o.out, name), append([]byte(header), text...), 0o644); err != nil {
			return fmt.Errorf("writing manifests: %w", err)
		}
	}
	return nil
}

// writeChart writes the archive that helm installs.
func writeChart(o options, at time.Time, spec chart.Spec) error {
	var err error
	if spec.License, err = os.ReadFile("LICENSE"); err != nil {
		return fmt.Errorf("writing chart: %w", err)
	}
	spec.Version, spec.Repository = o.number(), o.repository
	var b bytes.Buffer
	if err := chart.Write(&b, spec, at); err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return fmt.Errorf("writing chart: %w", err)
	}
	if err := os.WriteFile(o.chartFile(), b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing chart: %w", err)
	}
	return nil
}

func (o options) chartFile() string { return filepath.Join(o.out, "efs-stunnel-"+o.number()+".tgz") }

// makeChart writes the chart of the working folder, with images that a release or make images has pushed by their tag.
func makeChart(o options) error {
	sources, err := manifests.Read("deploy/kustomize")
	if err != nil {
		return err
	}
	images := manifests.Images{}
	for _, i := range allImages() {
		images[i.name] = o.registry + "/" + i.name + ":" + o.tag
	}
	if err := writeChart(o, time.Unix(0, 0).UTC(), chart.Spec{Source: sources, Images: images}); err != nil {
		return err
	}
	fmt.Println(o.chartFile())
	return nil
}

// pushChart pushes the chart of the folder beside the images.
func pushChart(ctx context.Context, o options) error {
	pushed, err := chart.Push(ctx, o.chartFile(), o.registry)
	if err != nil {
		return err
	}
	fmt.Println(pushed)
	return nil
}

func references(built []built) manifests.Images {
	all := manifests.Images{}
	for _, b := range built {
		all[b.name] = b.reference
	}
	return all
}

// writeSums writes the checksums of all files of the folder, as sha256sum --check reads them.
func writeSums(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("writing checksums: %w", err)
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	var lines strings.Builder
	for _, entry := range entries {
		sum, err := sha256Of(filepath.Join(folder, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%s  %s\n", sum, entry.Name())
	}
	if err := os.WriteFile(filepath.Join(folder, sumsFile), []byte(lines.String()), 0o644); err != nil {
		return fmt.Errorf("writing checksums: %w", err)
	}
	return nil
}

func sha256Of(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("writing checksums: %w", err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(data)), nil
}

// findSigner returns an error if a signature is wanted and cannot be made.
func findSigner(key string) error {
	if key == "" {
		return nil
	}
	if _, err := exec.LookPath("cosign"); err != nil {
		return fmt.Errorf("COSIGN_KEY is set, but cosign is not installed: install it, or make a release without a signature: %w", err)
	}
	return nil
}

// sign signs the checksums, and so every file.
func sign(ctx context.Context, folder, key string) error {
	if key == "" {
		return nil
	}
	sums := filepath.Join(folder, sumsFile)
	cmd := exec.CommandContext(ctx, "cosign", "sign-blob", "--yes", "--key", key, "--bundle", sums+".bundle", sums)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stderr, os.Stderr // it asks for the key's password
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("signing checksums with cosign: %w", err)
	}
	return nil
}
