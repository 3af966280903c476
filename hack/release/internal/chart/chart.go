// Package chart makes a Helm chart of the objects that kustomize renders. What a component has in
// addition to the base becomes conditional; what users set often becomes a value.
package chart

import (
	"bytes"
	_ "embed" // the texts of the chart that are not generated
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"text/template"
	"time"

	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/hack/release/internal/archive"
	"gnuthought.com/efs-stunnel/hack/release/internal/manifests"
)

// Spec has the inputs of a chart.
type Spec struct {
	Version string // without v
	Source  manifests.Source
	Images  manifests.Images
	License []byte
}

// component is a switch below "components" in the values.
type component struct {
	value  string
	folder string // in deploy/kustomize/components
}

// components returns all components but irsa, which is the annotation of a service account.
func components() []component {
	return []component{
		{"admission", "admission"},
		{"awsCredentials", "aws-credentials"},
		{"fips", "fips"},
		{"monitoring", "monitoring"},
		{"networkPolicy", "network-policy"},
		{"pinnedTargets", "pinned-targets"},
		{"readAhead", "read-ahead"},
		{"sharedVolumes", "shared-volumes"},
		{"startupTaint", "startup-taint"},
	}
}

func (c component) when() string { return ".Values.components." + c.value }

// namespaceToken stands for the namespace until the templates are written.
const namespaceToken = "namespace-of-the-values"

var (
	//go:embed values.yaml.tmpl
	valuesText string
	//go:embed helpers.tpl
	helpersText []byte
	//go:embed notes.txt
	notesText []byte
)

// Write writes the chart as the archive that helm installs.
func Write(w io.Writer, s Spec, at time.Time) error {
	files, err := s.files()
	if err != nil {
		return fmt.Errorf("making chart: %w", err)
	}
	for i := range files {
		files[i].Name = "efs-stunnel/" + files[i].Name
	}
	return archive.TarGz(w, files, at)
}

func (s Spec) files() ([]archive.File, error) {
	base, err := s.Source.Base(s.Images)
	if err != nil {
		return nil, err
	}
	pristine, err := objects(base)
	if err != nil {
		return nil, err
	}
	eks, err := s.Source.EKS(s.Images)
	if err != nil {
		return nil, err
	}
	values, err := s.values(pristine)
	if err != nil {
		return nil, err
	}
	trees := maps.Clone(pristine)
	if err := addVariant(trees, pristine, eks, "true"); err != nil {
		return nil, fmt.Errorf("overlay for EKS: %w", err)
	}
	if err := takeEKS(trees, &values); err != nil {
		return nil, err
	}
	files := []archive.File{
		{Name: "LICENSE", Data: s.License},
		{Name: "templates/_helpers.tpl", Data: helpersText},
		{Name: "templates/NOTES.txt", Data: notesText},
	}
	for _, c := range components() {
		variant, err := s.Source.Base(s.Images, c.folder)
		if err != nil {
			return nil, err
		}
		if err := addVariant(trees, pristine, variant, c.when()); err != nil {
			return nil, fmt.Errorf("component %s: %w", c.folder, err)
		}
	}
	if err := s.parameterize(trees); err != nil {
		return nil, err
	}
	for _, id := range slices.Sorted(maps.Keys(trees)) {
		text, err := render(trees[id])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", id, err)
		}
		files = append(files, archive.File{Name: "templates/" + id.file(), Data: text})
	}
	for name, write := range map[string]func() ([]byte, error){
		"Chart.yaml": s.description, "values.yaml": values.text, "values.schema.json": values.schema,
	} {
		text, err := write()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		files = append(files, archive.File{Name: name, Data: text})
	}
	return files, nil
}

// identity is the kind and the name of an object.
type identity string

func (i identity) file() string {
	return strings.ToLower(strings.ReplaceAll(string(i), "/", "-")) + ".yaml"
}

// objects returns the objects that kustomize has rendered, as trees.
func objects(rendered resmap.ResMap) (map[identity]any, error) {
	all := map[identity]any{}
	for _, r := range rendered.Resources() {
		object, err := r.Map()
		if err != nil {
			return nil, err
		}
		id := identity(path.Join(r.GetKind(), r.GetName()))
		if _, ok := all[id]; ok {
			return nil, fmt.Errorf("two objects are %s", id)
		}
		all[id] = object
	}
	return all, nil
}

// addVariant adds to the trees what the variant has in addition to the pristine objects.
func addVariant(trees, pristine map[identity]any, rendered resmap.ResMap, when string) error {
	variant, err := objects(rendered)
	if err != nil {
		return err
	}
	for id, object := range variant {
		old, ok := pristine[id]
		if !ok {
			if _, taken := trees[id]; taken {
				return fmt.Errorf("%s is added by two components", id)
			}
			trees[id] = conditional{when, object}
			continue
		}
		if trees[id], err = merge(trees[id], old, object, when); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
	}
	return nil
}

// render writes an object's template.
func render(tree any) ([]byte, error) {
	var w writer
	c, ok := tree.(conditional)
	if ok {
		w.instruct("if " + c.when)
		tree = c.value
	}
	object, isObject := tree.(map[string]any)
	if !isObject {
		return nil, fmt.Errorf("%T is no object", tree)
	}
	if err := w.object(0, object); err != nil {
		return nil, err
	}
	if ok {
		w.instruct("end")
	}
	return []byte(strings.ReplaceAll(w.text.String(), namespaceToken, "{{ .Values.namespace }}")), nil
}

func (s Spec) description() ([]byte, error) {
	return yaml.Marshal(map[string]any{
		"apiVersion": "v2", "type": "application", "name": "efs-stunnel",
		"version": s.Version, "appVersion": "v" + s.Version,
		"description": "Shared storage on Amazon EFS for Kubernetes, encrypted in transit, without a CSI driver",
		"home":        "https://gnuthought.com/efs-stunnel",
		"annotations": map[string]string{"artifacthub.io/license": "Apache-2.0"},
	})
}

// values are the defaults.
type values struct {
	Images map[string]image
	// Those of the base, which the chart's users may replace.
	ManagerResources, AgentResources, SupervisorResources any
	ManagerNodeSelector, ManagerTolerations               any
	Replicas, Parameters, Affinity                        any
	FileSystemTags                                        string
	BasePort, PortCount                                   int
	On                                                    map[string]bool // the components
	Switches                                              []string
}

type image struct{ Repository, Tag, Digest string }

func (v values) text() ([]byte, error) {
	t, err := template.New("values").Funcs(template.FuncMap{"indent": func(spaces int, value any) (string, error) {
		text, err := yaml.Marshal(value)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		return "\n" + strings.Repeat(" ", spaces) + strings.Join(lines, "\n"+strings.Repeat(" ", spaces)), err
	}}).Parse(valuesText)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = t.Execute(&b, v)
	return b.Bytes(), err
}

func (s Spec) values(pristine map[identity]any) (values, error) {
	v := values{Images: map[string]image{}, On: map[string]bool{}, BasePort: defaultBasePort, PortCount: defaultPortCount}
	for value, name := range imageValues() {
		repository, digest, _ := strings.Cut(s.Images[name], "@")
		v.Images[value] = image{repository, s.tag(), digest}
	}
	enabled, err := s.Source.Components()
	if err != nil {
		return values{}, err
	}
	for _, c := range components() {
		v.On[c.value] = slices.Contains(enabled, c.folder)
		v.Switches = append(v.Switches, c.value)
	}
	for _, name := range enabled {
		if !slices.ContainsFunc(components(), func(c component) bool { return c.folder == name }) {
			return values{}, fmt.Errorf("the overlay for EKS has the component %s, for which the chart has no switch", name)
		}
	}
	for _, f := range fields() {
		if f.keep == nil {
			continue
		}
		value, err := get(pristine[f.object], f.path...)
		if err != nil {
			return values{}, fmt.Errorf("%s: %w", f.object, err)
		}
		f.keep(&v, value)
	}
	return v, nil
}

// tag returns the tag of the release's images.
func (s Spec) tag() string { return "v" + s.Version }

// imageValues returns the names of the images in the values and in the base.
func imageValues() map[string]string {
	return map[string]string{"manager": "efs-manager", "agent": "efs-stunnel", "worker": "efs-worker"}
}
