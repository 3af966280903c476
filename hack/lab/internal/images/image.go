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

// Recipe says what an image holds and how it starts.
type Recipe struct {
	Base       v1.Image // nil = nothing
	Files      []File   // one layer, in this order
	Entrypoint []string
	Command    []string
	User       string // "" = root
	Env        []string
	WorkDir    string
}

// Build makes the image. Equal inputs give an equal digest.
func Build(r Recipe) (v1.Image, error) {
	base := r.Base
	if base == nil {
		base = empty.Image
	}
	layer, err := layerOf(r.Files)
	if err != nil {
		return nil, fmt.Errorf("building image: %w", err)
	}
	image, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return nil, fmt.Errorf("building image: %w", err)
	}
	image, err = configured(image, r)
	if err != nil {
		return nil, fmt.Errorf("building image: %w", err)
	}
	image, err = mutate.Time(image, epoch)
	if err != nil {
		return nil, fmt.Errorf("building image: %w", err)
	}
	return image, nil
}

func configured(image v1.Image, r Recipe) (v1.Image, error) {
	file, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("reading configuration: %w", err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", "amd64"
	c := &file.Config
	set(&c.Entrypoint, r.Entrypoint)
	set(&c.Cmd, r.Command)
	c.Env = append(c.Env, r.Env...)
	if r.User != "" {
		c.User = r.User
	}
	if r.WorkDir != "" {
		c.WorkingDir = r.WorkDir
	}
	return mutate.ConfigFile(image, file)
}

func set(field *[]string, value []string) {
	if len(value) > 0 {
		*field = value
	}
}

// nameRule is a repository and a tag without a registry.
var nameRule = regexp.MustCompile(`^[a-z0-9]+([._/-][a-z0-9]+)*:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

// InCluster is the name under which pods use an image of the lab's registry.
func InCluster(repositoryAndTag string) string {
	return fmt.Sprintf("%s:%d/%s", state.RegistryHost, state.RegistryPort, repositoryAndTag)
}

// Push sends an image to the lab's registry over its port on 127.0.0.1, and
// returns the image's name for pods.
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

// Load reads a tar file as `docker save` writes it, and gives its images by
// repository and tag, the registry cut off.
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
