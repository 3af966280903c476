package images

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Push sends the image of a file that Write made to a registry, with the credentials that docker, podman
// or crane have stored for it, and returns its name with the digest.
func Push(ctx context.Context, file, repository, tag string) (string, error) {
	target, err := name.NewTag(repository+":"+tag, name.StrictValidation)
	if err != nil {
		return "", fmt.Errorf("pushing image %s: %w", file, err)
	}
	folder, err := os.MkdirTemp("", "layout")
	if err != nil {
		return "", fmt.Errorf("pushing image %s: %w", file, err)
	}
	defer os.RemoveAll(folder) //nolint:errcheck // the system cleans its temporary folder
	index, err := read(file, folder)
	if err != nil {
		return "", fmt.Errorf("reading image %s: %w", file, err)
	}
	err = remote.WriteIndex(target, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
	if err != nil {
		return "", fmt.Errorf("pushing image %s: %w", file, err)
	}
	digest, err := index.Digest()
	return repository + "@" + digest.String(), err
}

// read unpacks a file, and returns the one image of the layout.
func read(file, folder string) (v1.ImageIndex, error) {
	if err := unpack(file, folder); err != nil {
		return nil, err
	}
	outer, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return nil, err
	}
	manifest, err := outer.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(manifest.Manifests) != 1 {
		return nil, fmt.Errorf("%d images, want 1", len(manifest.Manifests))
	}
	return outer.ImageIndex(manifest.Manifests[0].Digest)
}

func unpack(file, folder string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	for r := tar.NewReader(f); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if err := root.MkdirAll(filepath.Dir(header.Name), 0o755); err != nil {
			return err
		}
		if err := root.WriteFile(header.Name, data, 0o644); err != nil {
			return err
		}
	}
}
