package chart

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
	"sigs.k8s.io/yaml"
)

// blocks returns the objects in the blocks of YAML of the page.
func blocks(t *testing.T) []map[string]any {
	t.Helper()
	page, err := os.ReadFile("../../../../docs/tasks/gitops.md")
	if err != nil {
		t.Fatal(err)
	}
	var objects []map[string]any
	for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		for part := range strings.SplitSeq(m[1], "\n---\n") {
			var object map[string]any
			if err := yaml.UnmarshalStrict([]byte(part), &object); err != nil {
				t.Fatalf("%v:\n%s", err, part)
			}
			objects = append(objects, object)
		}
	}
	return objects
}

// TestExamplesHaveValuesOfTheChart: byHelmWith fails if Helm refuses them.
func TestExamplesHaveValuesOfTheChart(t *testing.T) {
	chart := loaded(t)
	found := map[string]bool{}
	for _, object := range blocks(t) {
		var values any
		var err error
		switch object["kind"] {
		case "Application":
			values, err = get(object, "spec", "source", "helm", "valuesObject")
		case "HelmRelease":
			values, err = get(object, "spec", "values")
		default:
			continue
		}
		set, ok := values.(map[string]any)
		if err != nil || !ok {
			t.Fatalf("%v has no values: %v", object["kind"], err)
		}
		found[fmt.Sprint(object["kind"])] = true
		byHelmWith(t, chart, set)
	}
	if len(found) != 2 {
		t.Errorf("got examples of %v, want an Application and a HelmRelease", found)
	}
}

// TestHealthOfSharedVolumes by the script for Argo CD, which runs it in this interpreter.
func TestHealthOfSharedVolumes(t *testing.T) {
	script := ""
	for _, object := range blocks(t) {
		data, _ := object["data"].(map[string]any)
		if text, ok := data["resource.customizations.health.efs-stunnel.gnuthought.com_SharedVolume"].(string); ok {
			script = text
		}
	}
	for name, tt := range map[string]struct{ object, want string }{
		"no status yet":     {"{metadata = {generation = 1}}", "Progressing the manager has not seen it yet"},
		"waits":             {`{metadata = {generation = 1}, status = {phase = "Pending", message = "no port", observedGeneration = 1}}`, "Progressing no port"},
		"ready":             {`{metadata = {generation = 1}, status = {phase = "Ready", observedGeneration = 1}}`, "Healthy Ready"},
		"failed":            {`{metadata = {generation = 1}, status = {phase = "Failed", message = "no access point"}}`, "Degraded no access point"},
		"being deleted":     {`{metadata = {generation = 2}, status = {phase = "Deleting", observedGeneration = 2}}`, "Progressing Deleting"},
		"an old generation": {`{metadata = {generation = 2}, status = {phase = "Ready", observedGeneration = 1}}`, "Progressing the manager has not seen it yet"},
	} {
		t.Run(name, func(t *testing.T) {
			state := lua.NewState()
			defer state.Close()
			if err := state.DoString("obj = " + tt.object + "\n" + script); err != nil {
				t.Fatal(err)
			}
			health, ok := state.Get(-1).(*lua.LTable)
			if !ok {
				t.Fatalf("the script returns %v", state.Get(-1))
			}
			if got := health.RawGetString("status").String() + " " + health.RawGetString("message").String(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
