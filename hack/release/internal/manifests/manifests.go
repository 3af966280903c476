// Package manifests renders the kustomizations of deploy/kustomize with the images of a release.
package manifests

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"io/fs"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// Source is a copy of deploy/kustomize in memory.
type Source struct{ files filesys.FileSystem }

const root = "/kustomize"

// Read copies the folder deploy/kustomize.
func Read(folder string) (Source, error) {
	s := Source{filesys.MakeFsInMemory()}
	err := filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(folder, name)
		if err != nil {
			return err
		}
		return s.files.WriteFile(path.Join(root, filepath.ToSlash(relative)), data)
	})
	if err != nil {
		return Source{}, fmt.Errorf("reading manifests: %w", err)
	}
	return s, nil
}

// Images are the names with digests by which pods pull the images, by the name in the base.
type Images map[string]string

// kustomization is a kustomization file; what it does not name here is kept.
type kustomization map[string]any

// list returns the list of a field, which may be absent.
func (k kustomization) list(field string) []any {
	list, _ := k[field].([]any) //nolint:errcheck // no list is an empty one
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

// setImages makes the kustomization name these images, and the mount Jobs' image, too.
func (k kustomization) setImages(images Images) {
	var list []any
	for name, image := range images {
		repository, digest, _ := strings.Cut(image, "@")
		list = append(list, map[string]any{"name": name, "newName": repository, "digest": digest})
	}
	k["images"] = list
}

// Overlay renders an overlay with images of the release. Those for OpenShift need no builds in the cluster.
func (s Source) Overlay(name string, images Images) ([]byte, error) {
	folder := path.Join(root, "overlays", name)
	file := path.Join(folder, "kustomization.yaml")
	text, err := s.files.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("rendering overlay %s: %w", name, err)
	}
	k := kustomization{}
	if err := yaml.Unmarshal(text, &k); err != nil {
		return nil, fmt.Errorf("rendering overlay %s: %w", name, err)
	}
	k.setImages(images)
	k.keep("resources", func(item any) bool { return item != "builds.yaml" })
	k.keep("replacements", func(item any) bool { return !strings.Contains(fmt.Sprint(item), "kind:BuildConfig") })
	changed, err := yaml.Marshal(k)
	if err != nil {
		return nil, fmt.Errorf("rendering overlay %s: %w", name, err)
	}
	if err := s.files.WriteFile(file, changed); err != nil {
		return nil, fmt.Errorf("rendering overlay %s: %w", name, err)
	}
	defer s.files.WriteFile(file, text) //nolint:errcheck // in memory
	objects, err := s.render(folder)
	if err != nil {
		return nil, fmt.Errorf("rendering overlay %s: %w", name, err)
	}
	return objects.AsYaml()
}

// Base renders the base with components and patches, as files of deploy/kustomize name them.
func (s Source) Base(images Images, components []string, patches ...Patch) (resmap.ResMap, error) {
	folder := path.Join(root, "overlays", "generated")
	k := kustomization{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
		"resources": []string{"../../base"}, "configurations": []string{"../eks/images.yaml"},
	}
	var paths []string
	for _, component := range components {
		paths = append(paths, "../../components/"+component)
	}
	k["components"] = paths
	k["patches"] = patches
	k.setImages(images)
	text, err := yaml.Marshal(k)
	if err != nil {
		return nil, fmt.Errorf("rendering the base: %w", err)
	}
	if err := s.files.WriteFile(path.Join(folder, "kustomization.yaml"), text); err != nil {
		return nil, fmt.Errorf("rendering the base: %w", err)
	}
	defer s.files.RemoveAll(folder) //nolint:errcheck // in memory
	objects, err := s.render(folder)
	if err != nil {
		return nil, fmt.Errorf("rendering the base with %s: %w", strings.Join(components, ", "), err)
	}
	return objects, nil
}

// Patch is one of a kustomization.
type Patch struct {
	Target *Target `json:"target,omitempty"`
	Path   string  `json:"path,omitempty"`
	Patch  string  `json:"patch,omitempty"`
}

// Target is what it changes.
type Target struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

func (s Source) render(folder string) (resmap.ResMap, error) {
	return krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(s.files, folder)
}
