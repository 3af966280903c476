// Package images builds container images from files and pushes them to the
// lab's registry, without a container engine.
package images

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
)

// Recipe is the content of an image, and its start.
type Recipe struct {
	Files      []File // one layer, in this order
	Entrypoint []string
	Command    []string
	User       string // "" = root
	Env        []string
}

// Build makes an image for linux/amd64. Equal inputs give an equal digest.
func Build(r Recipe) (v1.Image, error) {
	layer, err := layerOf(r.Files)
	if err != nil {
		return nil, fmt.Errorf("building image: %w", err)
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, fmt.Errorf("building image: %w", err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("building image: %w", err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", "amd64"
	file.Config = v1.Config{Entrypoint: r.Entrypoint, Cmd: r.Command, Env: r.Env, User: r.User}
	if image, err = mutate.ConfigFile(image, file); err != nil {
		return nil, fmt.Errorf("building image: %w", err)
	}
	if image, err = mutate.Time(image, epoch); err != nil {
		return nil, fmt.Errorf("building image: %w", err)
	}
	return image, nil
}

// nameRule is a repository and a tag without a registry.
var nameRule = regexp.MustCompile(`^[a-z0-9]+([._/-][a-z0-9]+)*:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

// InCluster returns the name of an image of the lab's registry in pods.
func InCluster(repositoryAndTag string) string {
	return fmt.Sprintf("%s:%d/%s", state.RegistryHost, state.RegistryPort, repositoryAndTag)
}

// Push sends an image to the lab's registry through its port on 127.0.0.1, and returns the image's name
// in pods.
func Push(ctx context.Context, port int, repositoryAndTag string, image v1.Image) (string, error) {
	if !nameRule.MatchString(repositoryAndTag) {
		return "", fmt.Errorf("image name %q: want REPOSITORY:TAG in lower case, without a registry, for example efs-stunnel/manager:dev", repositoryAndTag)
	}
	ref, err := name.ParseReference(fmt.Sprintf("127.0.0.1:%d/%s", port, repositoryAndTag), name.Insecure)
	if err != nil {
		return "", fmt.Errorf("pushing image %s: %w", repositoryAndTag, err)
	}
	if err := remote.Write(ref, image, remote.WithContext(ctx)); err != nil {
		return "", fmt.Errorf("pushing image %s: %w", repositoryAndTag, err)
	}
	return InCluster(repositoryAndTag), nil
}

// Load reads a tar file of `docker save`, and returns its images by repository and tag, without the
// registry.
func Load(file string) (map[string]v1.Image, error) {
	manifest, err := tarball.LoadManifest(tarball.Opener(fileOpener(file)))
	if err != nil {
		return nil, fmt.Errorf("reading image %s: %w", file, err)
	}
	images := make(map[string]v1.Image)
	for _, entry := range manifest {
		for _, text := range entry.RepoTags {
			tag, err := name.NewTag(text)
			if err != nil {
				return nil, fmt.Errorf("reading image %s: %w", file, err)
			}
			image, err := tarball.ImageFromPath(file, &tag)
			if err != nil {
				return nil, fmt.Errorf("reading image %s: %w", file, err)
			}
			images[tag.RepositoryStr()+":"+tag.TagStr()] = image
		}
	}
	if len(images) == 0 {
		return nil, fmt.Errorf("reading image %s: %w", file, errors.New("it has no name: save it with REPOSITORY:TAG"))
	}
	return images, nil
}
