package chart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	helmchart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/hack/release/internal/manifests"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

func newSpec() (Spec, error) {
	source, err := manifests.Read("../../../../deploy/kustomize")
	images := manifests.Images{}
	for _, name := range imageValues() {
		images[name] = "registry.example.com/storage/" + name + "@sha256:" + strings.Repeat("0", 64)
	}
	return Spec{Version: "1.2.3", Source: source, Images: images, License: []byte("license")}, err
}

func spec(t *testing.T) Spec {
	t.Helper()
	s, err := newSpec()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func write(s Spec) ([]byte, error) {
	var b bytes.Buffer
	err := Write(&b, s, time.Unix(1_700_000_000, 0))
	return b.Bytes(), err
}

// written renders the chart once for all tests: kustomize takes seconds for it.
var written = sync.OnceValues(func() ([]byte, error) {
	s, err := newSpec()
	if err != nil {
		return nil, err
	}
	return write(s)
})

// archived returns the chart of spec as Write writes it.
func archived(t *testing.T) []byte {
	t.Helper()
	archive, err := written()
	if err != nil {
		t.Fatal(err)
	}
	return archive
}

// loaded returns it as helm has it.
func loaded(t *testing.T) *helmchart.Chart {
	t.Helper()
	return load(t, archived(t))
}

func load(t *testing.T, archive []byte) *helmchart.Chart {
	t.Helper()
	chart, err := loader.LoadArchive(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	if err := chart.Validate(); err != nil {
		t.Fatal(err)
	}
	return chart
}

// byHelm returns the objects that helm would apply.
func byHelm(t *testing.T, chart *helmchart.Chart, text string) map[string]any {
	t.Helper()
	set := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &set); err != nil {
		t.Fatal(err)
	}
	return byHelmWith(t, chart, set)
}

// namespace holds the release, as it holds the objects of kustomize.
const namespace = "efs-stunnel"

// byHelmWith returns the objects without the labels that all objects of a chart have.
func byHelmWith(t *testing.T, chart *helmchart.Chart, set map[string]any) map[string]any {
	t.Helper()
	all := objectsOf(t, chart, set, namespace)
	for _, object := range all {
		labels, _ := object.(map[string]any)["metadata"].(map[string]any)["labels"].(map[string]any) //nolint:forcetypeassert // each has them
		for _, key := range []string{"helm.sh/chart", "app.kubernetes.io/instance", "app.kubernetes.io/version"} {
			if labels[key] == nil {
				t.Errorf("%v lacks the label %s", object, key)
			}
			delete(labels, key)
		}
	}
	return all
}

// rendering returns the texts of the templates by name, for a namespace and a version of Kubernetes.
func rendering(t *testing.T, chart *helmchart.Chart, set map[string]any, namespace, version string) (map[string]string, error) {
	t.Helper()
	values, err := util.ToRenderValues(chart, set, common.ReleaseOptions{Name: "efs", Namespace: namespace}, onKubernetes(version))
	if err != nil {
		t.Fatal(err)
	}
	return engine.Render(chart, values)
}

// objectsOf returns the objects by kind, namespace and name.
func objectsOf(t *testing.T, chart *helmchart.Chart, set map[string]any, namespace string) map[string]any {
	t.Helper()
	rendered, err := rendering(t, chart, set, namespace, "v1.36.0")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]any{}
	for name, text := range rendered {
		if strings.HasSuffix(name, "NOTES.txt") {
			continue
		}
		for part := range strings.SplitSeq(text, "\n---\n") {
			var object map[string]any
			if err := yaml.UnmarshalStrict([]byte(part), &object); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, part)
			}
			if object == nil {
				continue
			}
			if _, ok := all[key(object)]; ok {
				t.Errorf("two objects are %s", key(object))
			}
			all[key(object)] = object
		}
	}
	return all
}

func byKustomize(t *testing.T, rendered resmap.ResMap, err error) map[string]any {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]any{}
	for _, r := range rendered.Resources() {
		text, err := r.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		var object map[string]any
		if err := json.Unmarshal(text, &object); err != nil {
			t.Fatal(err)
		}
		all[key(object)] = object
	}
	return all
}

func key(object map[string]any) string {
	metadata, _ := object["metadata"].(map[string]any)
	return fmt.Sprintf("%s %v/%s", object["kind"], metadata["namespace"], metadata["name"])
}

// off switches off what the defaults have in addition to the base.
const off = "createNamespace: true\nfileSystemTags: ''\nusageInterval: ''\nagent: {affinity: null}\n"

func switches(on ...string) string {
	values := map[string]bool{}
	for _, c := range components() {
		values[c.value] = false
	}
	for _, name := range on {
		values[name] = true
	}
	text, _ := yaml.Marshal(map[string]any{"components": values})
	return string(text)
}

func TestDefaultsAreTheOverlayForEKS(t *testing.T) {
	s := spec(t)
	names, err := s.Source.Components()
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := s.Source.EKS(s.Images, names...)
	if diff := cmp.Diff(byKustomize(t, rendered, err), byHelm(t, loaded(t), "createNamespace: true")); diff != "" {
		t.Errorf("objects mismatch (-kustomize +helm):\n%s", diff)
	}
}

// TestComponentsAreThoseOfKustomize: none, each, and all.
func TestComponentsAreThoseOfKustomize(t *testing.T) {
	s := spec(t)
	chart := loaded(t)
	tests := map[string][]component{"none": nil, "all": components()}
	for _, c := range components() {
		tests[c.value] = []component{c}
	}
	for name, on := range tests {
		t.Run(name, func(t *testing.T) {
			var folders, values []string
			for _, c := range on {
				folders, values = append(folders, c.folder), append(values, c.value)
			}
			rendered, err := s.Source.Base(s.Images, folders...)
			if diff := cmp.Diff(byKustomize(t, rendered, err), byHelm(t, chart, off+switches(values...))); diff != "" {
				t.Errorf("objects mismatch (-kustomize +helm):\n%s", diff)
			}
		})
	}
}

// TestAnnotationsReplaceIRSA, the component that is no switch.
func TestAnnotationsReplaceIRSA(t *testing.T) {
	s := spec(t)
	rendered, err := s.Source.Base(s.Images, "irsa")
	values := off + switches() + "manager: {serviceAccount: {annotations: {eks.amazonaws.com/role-arn: 'arn:aws:iam::111122223333:role/efs-manager'}}}\n"
	if diff := cmp.Diff(byKustomize(t, rendered, err), byHelm(t, loaded(t), values)); diff != "" {
		t.Errorf("objects mismatch (-kustomize +helm):\n%s", diff)
	}
}

// TestNamespaceIsEverywhere: in the objects, and in the policies that name the service accounts.
func TestNamespaceIsEverywhere(t *testing.T) {
	all := switches(slicesOf(components())...)
	chart := loaded(t)
	other := byHelm(t, chart, all+"createNamespace: true\nnamespaceOverride: storage\n")
	want := map[string]any{}
	for name, object := range byHelm(t, chart, all+"createNamespace: true") {
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		changed := strings.NewReplacer(`"namespace":"efs-stunnel"`, `"namespace":"storage"`,
			"serviceaccount:efs-stunnel:", "serviceaccount:storage:").Replace(string(text))
		if strings.HasPrefix(name, "Namespace ") {
			changed = strings.Replace(changed, `"name":"efs-stunnel"`, `"name":"storage"`, 1)
		}
		var object map[string]any
		if err := json.Unmarshal([]byte(changed), &object); err != nil {
			t.Fatal(err)
		}
		want[key(object)] = object
	}
	if diff := cmp.Diff(want, other); diff != "" {
		t.Errorf("objects mismatch (-want +got):\n%s", diff)
	}
}

// TestTextsNameAddresses: users of the chart have no folder docs.
func TestTextsNameAddresses(t *testing.T) {
	for _, file := range loaded(t).Raw {
		for line := range strings.Lines(string(file.Data)) {
			if rest := strings.ReplaceAll(line, wellknown.DocsURL, ""); strings.Contains(rest, "docs/") {
				t.Errorf("%s: %s", file.Name, line)
			}
		}
	}
}

func slicesOf(all []component) []string {
	var names []string
	for _, c := range all {
		names = append(names, c.value)
	}
	return names
}

// TestReleaseHasOneNamespace, but for the agents' right to write events of nodes, which Kubernetes keeps in default.
// The chart does not make that namespace: helm install --create-namespace does. Its name may be a number.
func TestReleaseHasOneNamespace(t *testing.T) {
	set := map[string]any{}
	if err := yaml.Unmarshal([]byte(switches(slicesOf(components())...)), &set); err != nil {
		t.Fatal(err)
	}
	for name, object := range objectsOf(t, loaded(t), set, "2026") {
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		where, _, _ := strings.Cut(strings.SplitN(name, " ", 2)[1], "/")
		events := strings.HasSuffix(name, "efs-stunnel-agent-events")
		if strings.HasPrefix(name, "Namespace ") || where != "<nil>" && where != "2026" && !(events && where == "default") {
			t.Errorf("%s is not in the namespace of the release", name)
		}
		if strings.Contains(string(text), `"namespace":2026`) {
			t.Errorf("%s has a number as namespace", name)
		}
		if strings.Contains(string(text), `"namespace":"efs-stunnel"`) || strings.Contains(string(text), ":efs-stunnel:efs-") && !strings.Contains(string(text), "openshift") {
			t.Errorf("%s names another namespace: %s", name, text)
		}
	}
}

// TestComponentsMayOnlyAdd: one switch must not decide about what is another's.
func TestComponentsMayOnlyAdd(t *testing.T) {
	pristine := map[string]any{"a": "b", "list": []any{"x", "y"}}
	for name, variant := range map[string]any{
		"a changed value": map[string]any{"a": "c", "list": []any{"x", "y"}},
		"a removed key":   map[string]any{"list": []any{"x", "y"}},
		"a removed item":  map[string]any{"a": "b", "list": []any{"y"}},
	} {
		if got, err := merge(pristine, pristine, variant, "true"); err == nil {
			t.Errorf("%s is accepted: %v", name, got)
		}
	}
}

// onKubernetes returns the capabilities of a cluster: Helm's defaults are those of an older version.
func onKubernetes(version string) *common.Capabilities {
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.KubeVersion = common.KubeVersion{Version: version, Major: "1", Minor: version[3:5]}
	return capabilities
}

// TestFastBindingNeedsItsAPI, and the error is one sentence; without the component the chart needs no such version.
func TestFastBindingNeedsItsAPI(t *testing.T) {
	chart := loaded(t)
	for on, want := range map[bool]string{true: "components.fastBinding needs Kubernetes 1.36 or later", false: ""} {
		set := map[string]any{"components": map[string]any{"fastBinding": on}}
		_, err := rendering(t, chart, set, namespace, "v1.35.4")
		if (err != nil) != on || on && !strings.Contains(err.Error(), want) {
			t.Errorf("on %v: got %v, want %q", on, err, want)
		}
	}
}

// TestTemplatesRefuseWhatTheManagerCannotDo, where a schema cannot, with one sentence that names the value.
func TestTemplatesRefuseWhatTheManagerCannotDo(t *testing.T) {
	chart := loaded(t)
	for text, want := range map[string]string{
		"ports: {base: 65000}":                "the last port of ports.base and ports.count is 65999: want 65535 at most",
		"ports: {count: 50000}":               "the last port of ports.base and ports.count is 70489: want 65535 at most",
		"ports: {base: 65000, count: 536}":    "",
		"worker: {tolerations: [{value: a}]}": "a toleration of worker.tolerations has no key",
		"worker: {tolerations: [{key: a, effect: NoExecute, tolerationSeconds: 30}]}": `with key "a", has tolerationSeconds: mount Jobs stay on their node until they end`,
	} {
		set := map[string]any{}
		if err := yaml.Unmarshal([]byte(text), &set); err != nil {
			t.Fatal(err)
		}
		_, err := rendering(t, chart, set, namespace, "v1.36.0")
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

// TestLabelsAreValid for each version of a chart: Flux appends + and the digest of a chart from a registry, and a
// pre-release may be long.
func TestLabelsAreValid(t *testing.T) {
	chart := loaded(t)
	for version, want := range map[string]string{
		"1.2.3":              "efs-stunnel-1.2.3",
		"1.2.3+0cc9a8446c95": "efs-stunnel-1.2.3_0cc9a8446c95",
		"1.2.3-" + strings.Repeat("x", 44) + "-" + "rc.1": "efs-stunnel-1.2.3-" + strings.Repeat("x", 44),
	} {
		metadata := *chart.Metadata
		metadata.Version, metadata.AppVersion = version, "v"+version
		other := *chart
		other.Metadata = &metadata
		for name, object := range objectsOf(t, &other, nil, namespace) {
			labels, err := get(object, "metadata", "labels")
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			all, _ := labels.(map[string]any)
			for key, value := range all {
				if faults := validation.IsValidLabelValue(fmt.Sprint(value)); faults != nil {
					t.Errorf("%s: %s: %v: %s", name, key, value, faults)
				}
			}
			if got := all["helm.sh/chart"]; got != want {
				t.Errorf("%s: got label %v, want %s", name, got, want)
			}
		}
	}
}
