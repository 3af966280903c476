// Package chart makes a Helm chart of the objects that kustomize renders. What a component has in
// addition to the base becomes conditional; what users set often becomes a value.
package chart

import (
	"bytes"
	"cmp"
	_ "embed" // the texts of the chart that are not generated
	"encoding/base64"
	"encoding/json"
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
	Version    string // without v
	Source     manifests.Source
	Images     manifests.Images
	License    []byte
	Registry   string // from which helm installs the chart; "" = from a file
	Repository string // the address of the source code; "" = not known
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
		{"fastBinding", "fast-binding"},
		{"fips", "fips"},
		{"monitoring", "monitoring"},
		{"networkPolicy", "network-policy"},
		{"nfsServer", "nfs-server"},
		{"pinnedTargets", "pinned-targets"},
		{"readAhead", "read-ahead"},
		{"realtime", "realtime"},
		{"sharedVolumes", "shared-volumes"},
		{"startupTaint", "startup-taint"},
	}
}

// when returns the condition of a component's objects. That of fast-binding fails where Kubernetes lacks an API.
func (c component) when() string {
	if c.value == "fastBinding" {
		return `(include "efs-stunnel.fastBinding" $)`
	}
	return ".Values.components." + c.value
}

// Kubernetes are the versions that Helm installs the chart on.
const Kubernetes = ">=1.30.0-0"

// tokens stand for values within longer texts until the templates are written. Within a loop over values, only $ has
// all of them.
var tokens = strings.NewReplacer(
	namespaceToken, `{{ include "efs-stunnel.namespace" $ }}`,
	managerToken, `{{ $.Values.manager.serviceAccount.name | default "efs-manager" }}`,
	agentToken, `{{ $.Values.agent.serviceAccount.name | default "efs-stunnel" }}`,
	runbooksToken, "{{ $.Values.monitoring.runbookURL }}",
)

const (
	namespaceToken = "namespace-of-the-values"
	managerToken   = "account-of-the-manager"
	agentToken     = "account-of-the-agents"
	runbooksToken  = "page-of-the-runbooks"
)

var (
	//go:embed values.yaml.tmpl
	valuesText string
	//go:embed helpers.tpl
	helpersText []byte
	//go:embed notes.txt
	notesText string
	//go:embed README.md.tmpl
	readmeText string
	//go:embed icon.svg
	icon []byte
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
	if err := takeWorker(trees, &values); err != nil {
		return nil, err
	}
	files := []archive.File{
		{Name: "LICENSE", Data: s.License},
		{Name: "templates/_helpers.tpl", Data: helpersText},
		{Name: "templates/NOTES.txt", Data: []byte(withAddresses(notesText))},
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
	if values.Runbooks, err = runbooks(trees); err != nil {
		return nil, err
	}
	if err := s.parameterize(trees, values.Runbooks); err != nil {
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
		"Chart.yaml": s.Metadata, "values.yaml": values.text, "values.schema.json": values.schema,
		"README.md": func() ([]byte, error) { return s.readme(values) },
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
	object, _ := tree.(map[string]any)
	end := func() {}
	switch t := tree.(type) {
	case conditional:
		object, _ = t.value.(map[string]any)
		w.instruct("if " + t.when)
		end = func() { w.instruct("end") }
	case repeated:
		object = t.object
		w.instruct("range " + t.items)
		w.line(0, "---")
		end = func() { w.instruct("end") }
	}
	if object == nil {
		return nil, fmt.Errorf("%T is no object", tree)
	}
	if err := w.object(0, object); err != nil {
		return nil, err
	}
	end()
	return []byte(tokens.Replace(w.text.String())), nil
}

// Metadata returns Chart.yaml.
func (s Spec) Metadata() ([]byte, error) {
	metadata := map[string]any{
		"apiVersion": "v2", "type": "application", "name": "efs-stunnel",
		"version": s.Version, "appVersion": "v" + s.Version, "kubeVersion": Kubernetes,
		"description": "Shared storage on Amazon EFS for Kubernetes, encrypted in transit, without a CSI driver",
		"keywords":    []string{"storage", "efs", "nfs", "aws", "eks", "ReadWriteMany", "persistent-volume", "stunnel"},
		// In the chart itself: it is shown wherever the chart is, before the project has an address.
		"icon":        "data:image/svg+xml;base64," + base64.StdEncoding.EncodeToString(icon),
		"annotations": map[string]string{"artifacthub.io/license": "Apache-2.0", "artifacthub.io/category": "storage"},
	}
	if s.Repository != "" {
		metadata["home"], metadata["sources"] = s.Repository, []string{s.Repository}
	}
	return yaml.Marshal(metadata)
}

// readme returns the page that registries show, and helm show readme.
func (s Spec) readme(v values) ([]byte, error) {
	defaults, err := v.defaults()
	if err != nil {
		return nil, err
	}
	type row struct{ Value, Default string }
	var rows []row
	var walk func(path string, value any) error
	walk = func(path string, value any) error {
		object, ok := value.(map[string]any)
		if !ok || free(path, object) {
			encoded, err := json.Marshal(value)
			rows = append(rows, row{path, "`" + string(encoded) + "`"})
			return err
		}
		for _, key := range slices.Sorted(maps.Keys(object)) {
			if err := walk(strings.TrimPrefix(path+"."+key, "."), object[key]); err != nil {
				return err
			}
		}
		return nil
	}
	if err := walk("", defaults); err != nil {
		return nil, err
	}
	source := "efs-stunnel-" + s.Version + ".tgz"
	if s.Registry != "" {
		source = Reference(s.Registry)
	}
	t, err := template.New("readme").Parse(readmeText)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = t.Execute(&b, map[string]any{"Version": s.Version, "Kubernetes": "1.30 or later", "Source": source, "Rows": rows})
	return b.Bytes(), err
}

// Reference returns the address of the chart in a registry, as helm takes it. The images are beside the folder.
func Reference(registry string) string { return "oci://" + registry + "/charts/efs-stunnel" }

// values are the defaults.
type values struct {
	Images              map[string]image
	Defaults            map[string]any // of the base and of fields, by value
	Affinity            any            // of the agents
	Classes             []any
	Flags               map[string]string // of the manager in the overlay for EKS, by value
	WorkerPriority      string
	Runbooks            string
	BasePort, PortCount int
	On                  map[string]bool // the components
	Switches            []string
}

// Default returns the default of a value that the base has.
func (v values) Default(value string) (any, error) {
	d, ok := v.Defaults[value]
	if !ok {
		return nil, fmt.Errorf("the base has no default of %s", value)
	}
	return d, nil
}

type image struct{ Repository, Tag, Digest string }

func (v values) text() ([]byte, error) {
	t, err := template.New("values").Funcs(template.FuncMap{"indent": func(spaces int, value any) (string, error) {
		text, err := yaml.Marshal(value)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		return "\n" + strings.Repeat(" ", spaces) + strings.Join(lines, "\n"+strings.Repeat(" ", spaces)), err
	}}).Parse(withAddresses(valuesText))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = t.Execute(&b, v)
	return b.Bytes(), err
}

// defaults returns the values as Helm reads them.
func (v values) defaults() (read map[string]any, err error) {
	text, err := v.text()
	if err != nil {
		return nil, err
	}
	err = yaml.Unmarshal(text, &read)
	return read, err
}

func (s Spec) values(pristine map[identity]any) (values, error) {
	v := values{
		Images: map[string]image{}, Defaults: map[string]any{}, Flags: map[string]string{}, On: map[string]bool{},
		BasePort: defaultBasePort, PortCount: defaultPortCount,
	}
	for value, name := range imageValues() {
		v.Images[value] = s.image(name)
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
		if v.Defaults[f.value], err = get(pristine[f.object], f.path...); err != nil {
			return values{}, fmt.Errorf("%s: %w", f.object, err)
		}
	}
	v.Classes, err = classes(pristine[class])
	return v, err
}

// image returns an image of the chart. One of a release has a digest, and then the release's tag.
func (s Spec) image(name string) image {
	repository, tag, digest := manifests.Split(s.Images[name])
	return image{repository, cmp.Or(tag, "v"+s.Version), digest}
}

// imageValues returns the names of the images in the values and in the base.
func imageValues() map[string]string {
	return map[string]string{"manager": "efs-manager", "agent": "efs-stunnel", "nfsServer": "efs-stunnel-nfsserver", "worker": "efs-worker"}
}
