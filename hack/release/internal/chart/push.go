package chart

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"
)

// The types by which helm knows a chart in a registry.
const (
	configType  = types.MediaType("application/vnd.cncf.helm.config.v1+json")
	contentType = types.MediaType("application/vnd.cncf.helm.chart.content.v1.tar+gzip")
)

// Push sends a chart that Write made to a registry, as helm push does, with the credentials that docker, podman or
// crane have stored for it, and returns its address with its version.
func Push(ctx context.Context, file, registry string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("pushing chart: %w", err)
	}
	artifact, version, err := newArtifact(content)
	if err != nil {
		return "", fmt.Errorf("reading chart %s: %w", file, err)
	}
	target, err := name.NewTag(strings.TrimPrefix(Reference(registry), "oci://")+":"+version, name.StrictValidation)
	if err != nil {
		return "", fmt.Errorf("pushing chart %s: %w", file, err)
	}
	image, err := partial.CompressedToImage(artifact)
	if err != nil {
		return "", fmt.Errorf("pushing chart %s: %w", file, err)
	}
	if err := remote.Write(target, image, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return "", fmt.Errorf("pushing chart %s: %w", file, err)
	}
	return "oci://" + target.Name(), nil
}

// artifact is a chart as an image of one layer, whose configuration is Chart.yaml.
type artifact struct {
	manifest, config []byte
	content          v1.Layer
}

// newArtifact returns the chart of an archive, and its version.
func newArtifact(content []byte) (artifact, string, error) {
	text, err := readMetadata(content)
	if err != nil {
		return artifact{}, "", err
	}
	config, err := yaml.YAMLToJSON(text)
	if err != nil {
		return artifact{}, "", err
	}
	var metadata struct{ Name, Version, Description string }
	if err := json.Unmarshal(config, &metadata); err != nil {
		return artifact{}, "", err
	}
	layer := static.NewLayer(content, contentType)
	layerHash, err := layer.Digest()
	if err != nil {
		return artifact{}, "", err
	}
	configHash, configSize, err := v1.SHA256(bytes.NewReader(config))
	if err != nil {
		return artifact{}, "", err
	}
	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1,
		Config: v1.Descriptor{MediaType: configType, Size: configSize, Digest: configHash},
		Layers: []v1.Descriptor{{MediaType: contentType, Size: int64(len(content)), Digest: layerHash}},
		Annotations: map[string]string{
			"org.opencontainers.image.title": metadata.Name, "org.opencontainers.image.version": metadata.Version,
			"org.opencontainers.image.description": metadata.Description,
		},
	})
	return artifact{manifest, config, layer}, metadata.Version, err
}

// readMetadata returns Chart.yaml of an archive.
func readMetadata(content []byte) ([]byte, error) {
	unpacked, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	for r := tar.NewReader(unpacked); ; {
		header, err := r.Next()
		if err != nil {
			return nil, fmt.Errorf("looking for Chart.yaml: %w", err)
		}
		if header.Name == "efs-stunnel/Chart.yaml" {
			return io.ReadAll(r)
		}
	}
}

// MediaType implements partial.CompressedImageCore.
func (a artifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// RawManifest implements partial.CompressedImageCore.
func (a artifact) RawManifest() ([]byte, error) { return a.manifest, nil }

// RawConfigFile implements partial.CompressedImageCore.
func (a artifact) RawConfigFile() ([]byte, error) { return a.config, nil }

// LayerByDigest implements partial.CompressedImageCore.
func (a artifact) LayerByDigest(hash v1.Hash) (partial.CompressedLayer, error) {
	own, err := a.content.Digest()
	if err != nil {
		return nil, err
	}
	if hash != own {
		return nil, fmt.Errorf("the chart has no layer %s", hash)
	}
	return a.content, nil
}
