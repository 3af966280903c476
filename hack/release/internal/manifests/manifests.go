// Package manifests renders the kustomizations of deploy/kustomize with the images of a release.
package manifests

import (
	"fmt"
	"path"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/hack/release/internal/archive"
)

// Source is a copy of deploy/kustomize in memory.
type Source struct{ files filesys.FileSystem }

const root = "/kustomize"

// Read copies the folder deploy/kustomize.
func Read(folder string) (Source, error) {
	files, err := archive.Folder(folder)
	if err != nil {
		return Source{}, fmt.Errorf("reading manifests: %w", err)
	}
	s := Source{filesys.MakeFsInMemory()}
	for _, file := range files {
		if err := s.files.WriteFile(path.Join(root, file.Name), file.Data); err != nil {
			return Source{}, fmt.Errorf("reading manifests: %w", err)
		}
	}
	return s, nil
}

// Images are the names with digests, or with tags, by which pods pull the images, by the name in the base.
type Images map[string]string

// kustomization is a kustomization file; what it does not name here is kept.
type kustomization map[string]any

// list returns the list of a field; absent, or anything else, is an empty one.
func (k kustomization) list(field string) []any {
	list, _ := k[field].([]any)
	return list
}

// keep removes the items of a list for which wanted is false.
func (k kustomization) keep(field string, wanted func(any) bool) {
	var kept []any
	for _, item := range k.list(field) {
		if wanted(item) {
			kept = append(kept, item)
		}
	}
	k[field] = kept
}

// registry is in the base's names of images. No registry can have it: a name without one would be somebody
// else's on Docker Hub.
const registry = "replace-me.invalid/"

// setImages makes the kustomization name these images, and the mount Jobs' image, too.
func (k kustomization) setImages(images Images) {
	var list []any
	for name, image := range images {
		repository, tag, digest := Split(image)
		list = append(list, map[string]any{"name": registry + name, "newName": repository, "newTag": tag, "digest": digest})
	}
	k["images"] = list
}

// Split returns the parts of an image's name, which has a tag or a digest.
func Split(image string) (repository, tag, digest string) {
	if repository, digest, ok := strings.Cut(image, "@"); ok {
		return repository, "", digest
	}
	if colon := strings.LastIndex(image, ":"); colon > strings.LastIndex(image, "/") {
		return image[:colon], image[colon+1:], ""
	}
	return image, "", ""
}

// Overlay renders an overlay with images of the release. Those for OpenShift need no builds in the cluster.
func (s Source) Overlay(name string, images Images) ([]byte, error) {
	objects, err := s.render(name, func(k kustomization) {
		k.setImages(images)
		k.keep("resources", func(item any) bool { return item != "builds.yaml" })
		k.keep("replacements", func(item any) bool { return !strings.Contains(fmt.Sprint(item), "kind:BuildConfig") })
	})
	if err != nil {
		return nil, err
	}
	return objects.AsYaml()
}

// eks has the least that the base needs to be rendered with images.
const eks = "eks"

// Base renders the base with components.
func (s Source) Base(images Images, components ...string) (resmap.ResMap, error) {
	return s.render(eks, func(k kustomization) {
		k.setImages(images)
		k.setComponents(components)
		delete(k, "patches")
	})
}

// EKS renders the overlay for EKS with other components than its own.
func (s Source) EKS(images Images, components ...string) (resmap.ResMap, error) {
	return s.render(eks, func(k kustomization) {
		k.setImages(images)
		k.setComponents(components)
	})
}

// Components returns the components of the overlay for EKS.
func (s Source) Components() ([]string, error) {
	var names []string
	_, err := s.render(eks, func(k kustomization) {
		for _, item := range k.list("components") {
			names = append(names, path.Base(fmt.Sprint(item)))
		}
	})
	return names, err
}

func (k kustomization) setComponents(names []string) {
	var paths []any
	for _, name := range names {
		paths = append(paths, "../../components/"+name)
	}
	k["components"] = paths
}

// render renders an overlay whose kustomization is changed before.
func (s Source) render(overlay string, change func(kustomization)) (resmap.ResMap, error) {
	folder := path.Join(root, "overlays", overlay)
	file := path.Join(folder, "kustomization.yaml")
	text, err := s.files.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("rendering overlay %s: %w", overlay, err)
	}
	k := kustomization{}
	if err := yaml.Unmarshal(text, &k); err != nil {
		return nil, fmt.Errorf("rendering overlay %s: %w", overlay, err)
	}
	change(k)
	changed, err := yaml.Marshal(k)
	if err != nil {
		return nil, fmt.Errorf("rendering overlay %s: %w", overlay, err)
	}
	if err := s.files.WriteFile(file, changed); err != nil {
		return nil, fmt.Errorf("rendering overlay %s: %w", overlay, err)
	}
	defer s.files.WriteFile(file, text) //nolint:errcheck // in memory
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(s.files, folder)
	if err != nil {
		return nil, fmt.Errorf("rendering overlay %s: %w", overlay, err)
	}
	return objects, nil
}
