package chart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	helmchart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/hack/release/internal/manifests"
)

func spec(t *testing.T) Spec {
	t.Helper()
	source, err := manifests.Read("../../../../deploy/kustomize")
	if err != nil {
		t.Fatal(err)
	}
	images := manifests.Images{}
	for _, name := range imageValues() {
		images[name] = "registry.example.com/storage/" + name + "@sha256:" + strings.Repeat("0", 64)
	}
	return Spec{Version: "1.2.3", Source: source, Images: images, License: []byte("license")}
}

func load(t *testing.T, s Spec) *helmchart.Chart {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, s, time.Unix(1_700_000_000, 0)); err != nil {
		t.Fatal(err)
	}
	loaded, err := loader.LoadArchive(&b)
	if err != nil {
		t.Fatal(err)
	}
	if err := loaded.Validate(); err != nil {
		t.Fatal(err)
	}
	return loaded
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

func byHelmWith(t *testing.T, chart *helmchart.Chart, set map[string]any) map[string]any {
	t.Helper()
	values, err := util.ToRenderValues(chart, set, common.ReleaseOptions{Name: "efs", Namespace: "default"}, common.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := engine.Render(chart, values)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]any{}
	for name, text := range rendered {
		var object map[string]any
		if strings.HasSuffix(name, "NOTES.txt") || strings.TrimSpace(text) == "" {
			continue
		}
		if err := yaml.UnmarshalStrict([]byte(text), &object); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		if object != nil {
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
		if kind := object["kind"]; kind == "Namespace" || kind == "CustomResourceDefinition" && strings.Contains(string(text), "sharedvolumes") {
			// Helm must not delete them with the release.
			object["metadata"].(map[string]any)["annotations"] = map[string]any{"helm.sh/resource-policy": "keep"} //nolint:errcheck,forcetypeassert // kustomize has it
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
const off = "fileSystemTags: ''\nagent: {affinity: null}\n"

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
	if diff := cmp.Diff(byKustomize(t, rendered, err), byHelm(t, load(t, s), "")); diff != "" {
		t.Errorf("objects mismatch (-kustomize +helm):\n%s", diff)
	}
}

// TestComponentsAreThoseOfKustomize: none, each, and all.
func TestComponentsAreThoseOfKustomize(t *testing.T) {
	s := spec(t)
	chart := load(t, s)
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
	values := off + switches() + "manager: {serviceAccountAnnotations: {eks.amazonaws.com/role-arn: 'arn:aws:iam::111122223333:role/efs-manager'}}\n"
	if diff := cmp.Diff(byKustomize(t, rendered, err), byHelm(t, load(t, s), values)); diff != "" {
		t.Errorf("objects mismatch (-kustomize +helm):\n%s", diff)
	}
}

// TestNamespaceIsEverywhere: in the objects, and in the policies that name the service accounts.
func TestNamespaceIsEverywhere(t *testing.T) {
	s := spec(t)
	all := switches(slicesOf(components())...)
	other := byHelm(t, load(t, s), all+"namespace: storage\n")
	want := map[string]any{}
	for name, object := range byHelm(t, load(t, s), all) {
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

func slicesOf(all []component) []string {
	var names []string
	for _, c := range all {
		names = append(names, c.value)
	}
	return names
}

// TestValuesChangeObjects: each value that is no switch.
func TestValuesChangeObjects(t *testing.T) {
	chart := load(t, spec(t))
	before := byHelm(t, chart, "")
	tests := map[string]struct{ values, object, want string }{
		"tag":            {"images: {worker: {digest: '', tag: v9}}", "Deployment efs-stunnel/efs-manager", `"value":"registry.example.com/storage/efs-worker:v9"`},
		"only a tag":     {"images: {worker: {tag: v9}}", "Deployment efs-stunnel/efs-manager", `"value":"registry.example.com/storage/efs-worker:v9"`},
		"tag and digest": {"images: {worker: {tag: v9, digest: 'sha256:1'}}", "Deployment efs-stunnel/efs-manager", `"value":"registry.example.com/storage/efs-worker@sha256:1"`},
		"repository":     {"images: {agent: {repository: mirror/agent}}", "DaemonSet efs-stunnel/efs-read-ahead", `"image":"mirror/agent@sha256:`},
		"pull secrets":   {"imagePullSecrets: [{name: pull}]", "ServiceAccount efs-stunnel/efs-worker", `"imagePullSecrets":[{"name":"pull"}]`},
		"manager's args": {"manager: {args: [--log-level=DEBUG]}", "Deployment efs-stunnel/efs-manager", `"--file-system-tags=efs-stunnel=true","--log-level=DEBUG"]`},
		"manager's env":  {"manager: {env: [{name: AWS_REGION, value: eu-west-1}]}", "Deployment efs-stunnel/efs-manager", `{"name":"AWS_REGION","value":"eu-west-1"}]`},
		"selector":       {"manager: {nodeSelector: {a: b}}", "Deployment efs-stunnel/efs-manager", `"nodeSelector":{"a":"b","kubernetes.io/os":"linux"}`},
		"tolerations":    {"manager: {tolerations: []}", "Deployment efs-stunnel/efs-manager", `"tolerations":[]`},
		"replicas":       {"manager: {replicas: 3}", "Deployment efs-stunnel/efs-manager", `"replicas":3`},
		"agent's args":   {"agent: {args: [--log-level=DEBUG]}", "DaemonSet efs-stunnel/efs-stunnel", `"args":["--log-level=DEBUG"]`},
		"agent's env":    {"agent: {env: [{name: A, value: b}]}", "DaemonSet efs-stunnel/efs-stunnel", `{"name":"A","value":"b"}]`},
		"supervisor's args": {
			"supervisor: {args: [--tunnel-idle=0]}",
			"DaemonSet efs-stunnel/efs-stunnel", `"args":["supervise","--tunnel-idle=0"]`,
		},
		"supervisor's env": {
			"supervisor: {env: [{name: A, value: b}]}",
			"DaemonSet efs-stunnel/efs-stunnel", `"args":["supervise"],"env":[{"name":"A","value":"b"}]`,
		},
		"supervisor's env beside a component's": {
			"components: {fips: true}\nsupervisor: {env: [{name: A, value: b}]}",
			"DaemonSet efs-stunnel/efs-stunnel", `"env":[{"name":"EFS_FIPS","value":"true"},{"name":"A","value":"b"}]`,
		},
		"resources":      {"supervisor: {resources: {requests: {cpu: '2'}}}", "DaemonSet efs-stunnel/efs-stunnel", `"cpu":"2"`},
		"agent's memory": {"agent: {resources: {limits: {memory: 1Gi}}}", "DaemonSet efs-stunnel/efs-stunnel", `"memory":"1Gi"`},
		"agent's role":   {"agent: {serviceAccountAnnotations: {a: b}}", "ServiceAccount efs-stunnel/efs-stunnel", `"annotations":{"a":"b"}`},
		"manager's CPU":  {"manager: {resources: {requests: {cpu: '3'}}}", "Deployment efs-stunnel/efs-manager", `"cpu":"3"`},
		"default class":  {"storageClass: {default: true}", "StorageClass <nil>/efs-stunnel", `"is-default-class":"true"`},
		"policy":         {"storageClass: {reclaimPolicy: Retain}", "StorageClass <nil>/efs-stunnel", `"reclaimPolicy":"Retain"`},
		"parameters":     {"storageClass: {parameters: {base_path: /x}}", "StorageClass <nil>/efs-stunnel", `"base_path":"/x"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			after := byHelm(t, chart, tt.values)
			text, err := json.Marshal(after[tt.object])
			if err != nil {
				t.Fatal(err)
			}
			got := strings.ReplaceAll(string(text), "storageclass.kubernetes.io/", "")
			if !strings.Contains(got, tt.want) {
				t.Errorf("%s lacks %s:\n%s", tt.object, tt.want, got)
			}
			if cmp.Equal(before[tt.object], after[tt.object]) {
				t.Errorf("%s is as before", tt.object)
			}
		})
	}
	for value, object := range map[string]string{"createNamespace: false": "Namespace <nil>/efs-stunnel", "storageClass: {create: false}": "StorageClass <nil>/efs-stunnel"} {
		after := byHelm(t, chart, value)
		want := maps.Clone(before)
		delete(want, object)
		if diff := cmp.Diff(want, after); diff != "" || len(want) == len(before) {
			t.Errorf("%s: objects mismatch (-want +got):\n%s", value, diff)
		}
	}
}

// TestPortsAreThoseOfManagerAndPolicies: with another range, these three objects differ from kustomize's. A
// number has the first type in a file of values, and the second on the command line.
func TestPortsAreThoseOfManagerAndPolicies(t *testing.T) {
	s := spec(t)
	chart := load(t, s)
	rendered, err := s.Source.Base(s.Images, "admission")
	plain := byKustomize(t, rendered, err)
	ports := func(base, count any) map[string]any { return map[string]any{"base": base, "count": count} }
	for name, tt := range map[string]struct {
		ports       map[string]any
		first, last string
		flags       string
	}{
		"file":         {ports(float64(24000), float64(2000)), "24000", "25999", `"--base-stunnel-port=24000","--stunnel-port-count=2000"`},
		"command line": {ports(int64(24000), int64(2000)), "24000", "25999", `"--base-stunnel-port=24000","--stunnel-port-count=2000"`},
		"base":         {map[string]any{"base": int64(24000)}, "24000", "24999", `"--base-stunnel-port=24000"`},
		"count":        {map[string]any{"count": float64(2000)}, "20490", "22489", `"--stunnel-port-count=2000"`},
	} {
		t.Run(name, func(t *testing.T) {
			want := maps.Clone(plain)
			for _, policy := range []string{"efs-stunnel-host-ports", "efs-stunnel-node-ports"} {
				key := "ValidatingAdmissionPolicy <nil>/" + policy
				want[key] = replaced(t, want[key], `"20490"`, `"`+tt.first+`"`, `"21489"`, `"`+tt.last+`"`)
			}
			const flag = `"--worker-priority-class=system-cluster-critical"`
			key := "Deployment efs-stunnel/efs-manager"
			want[key] = replaced(t, want[key], flag, flag+","+tt.flags)

			var set map[string]any
			if err := yaml.Unmarshal([]byte(off+switches("admission")), &set); err != nil {
				t.Fatal(err)
			}
			set["ports"] = tt.ports
			if diff := cmp.Diff(want, byHelmWith(t, chart, set)); diff != "" {
				t.Errorf("objects mismatch (-want +helm):\n%s", diff)
			}
		})
	}
}

// replaced returns the object with other texts.
func replaced(t *testing.T, object any, oldnew ...string) any {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var changed any
	if err := json.Unmarshal([]byte(strings.NewReplacer(oldnew...).Replace(string(text))), &changed); err != nil {
		t.Fatal(err)
	}
	return changed
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
