// Package images builds container images for several architectures, and writes them as OCI layouts.
package images

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"gnuthought.com/efs-stunnel/hack/release/internal/archive"
)

// Recipe is the content of an image, and its start.
type Recipe struct {
	Layers     map[string][][]archive.File // by architecture: the layers, the first one below the others
	User       string
	Entrypoint string
	Labels     map[string]string
	Time       time.Time
}

// Build makes an image for each architecture, with one name for all. Equal inputs give an equal digest.
func Build(r Recipe, architectures []string) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, architecture := range architectures {
		image, err := r.build(architecture)
		if err != nil {
			return nil, fmt.Errorf("building image for %s: %w", architecture, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}},
		})
	}
	return index, nil
}

func (r Recipe) build(architecture string) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, files := range r.Layers[architecture] {
		layer, err := layerOf(files, r.Time)
		if err != nil {
			return nil, err
		}
		image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: r.Time}}})
		if err != nil {
			return nil, err
		}
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created = "linux", architecture, v1.Time{Time: r.Time}
	file.Config = v1.Config{Entrypoint: []string{r.Entrypoint}, User: r.User, Labels: r.Labels}
	return mutate.ConfigFile(image, file)
}

func layerOf(files []archive.File, at time.Time) (v1.Layer, error) {
	var b bytes.Buffer
	if err := archive.Tar(&b, files, at); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
}

// Write writes an OCI layout as a tar file, in which the image has the tag.
func Write(file string, index v1.ImageIndex, tag string, at time.Time) error {
	folder, err := os.MkdirTemp("", "layout")
	if err != nil {
		return fmt.Errorf("writing image %s: %w", file, err)
	}
	defer os.RemoveAll(folder) //nolint:errcheck // the system cleans its temporary folder
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return fmt.Errorf("writing image %s: %w", file, err)
	}
	name := map[string]string{"org.opencontainers.image.ref.name": tag}
	if err := path.AppendIndex(index, layout.WithAnnotations(name)); err != nil {
		return fmt.Errorf("writing image %s: %w", file, err)
	}
	files, err := archive.Folder(folder)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := archive.Tar(&b, files, at); err != nil {
		return fmt.Errorf("writing image %s: %w", file, err)
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}
