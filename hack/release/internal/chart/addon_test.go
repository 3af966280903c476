package chart

import (
	"regexp"
	"strings"
	"testing"

	helmchart "helm.sh/helm/v4/pkg/chart/v2"
)

// TestChartFollowsTheRulesOfEKS for the charts of add-ons: AWS renders them itself, without Helm's state. The rules
// are those of AWS Marketplace for container products ("INCOMPATIBLE_HELM_OBJECTS") and of aws-samples'
// addons-transformer-for-amazon-eks.
func TestChartFollowsTheRulesOfEKS(t *testing.T) {
	chart := loaded(t)
	if len(chart.Metadata.Dependencies)+len(chart.Dependencies()) > 0 {
		t.Error("dependencies must be in the chart")
	}
	for _, template := range chart.Templates {
		for _, fault := range faultsOfAddOn(string(template.Data)) {
			t.Errorf("%s: %s", template.Name, fault)
		}
	}
	if !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(chart.Metadata.Version) {
		t.Errorf("version %s: want three numbers", chart.Metadata.Version)
	}
}

var (
	instruction  = regexp.MustCompile(`(?s)\{\{.*?\}\}`)
	releaseField = regexp.MustCompile(`\.Release\.(\w+)`)
	lookup       = regexp.MustCompile(`\blookup\b`)
)

// faultsOfAddOn returns what a template has that AWS does not render.
func faultsOfAddOn(text string) []string {
	var faults []string
	if strings.Contains(text, "helm.sh/hook") {
		faults = append(faults, "hooks")
	}
	for _, code := range instruction.FindAllString(text, -1) {
		if strings.HasPrefix(code, "{{- /*") {
			continue
		}
		for _, m := range releaseField.FindAllStringSubmatch(code, -1) {
			if m[1] != "Name" && m[1] != "Namespace" {
				faults = append(faults, m[0])
			}
		}
		if lookup.MatchString(code) {
			faults = append(faults, "lookup")
		}
		if strings.Contains(code, ".APIVersions") {
			faults = append(faults, ".Capabilities.APIVersions")
		}
	}
	return faults
}

func TestFaultsOfAddOnsAreFound(t *testing.T) {
	for text, want := range map[string]string{
		"a: {{ .Release.Service }}":                            ".Release.Service",
		"{{- if .Release.IsUpgrade }}":                         ".Release.IsUpgrade",
		`{{ (lookup "v1" "Namespace" "" "a") }}`:               "lookup",
		`{{ if .Capabilities.APIVersions.Has "a/v1" }}`:        ".Capabilities.APIVersions",
		"annotations:\n  helm.sh/hook: pre-install":            "hooks",
		"a: {{ .Release.Name }}\nb: {{ $.Release.Namespace }}": "",
	} {
		if got := strings.Join(faultsOfAddOn(text), ", "); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// TestChartDescribesItself as registries show it. Nothing names an address that the project may not have.
func TestChartDescribesItself(t *testing.T) {
	chart := loaded(t)
	m := chart.Metadata
	if m.KubeVersion == "" || len(m.Keywords) == 0 || !strings.HasPrefix(m.Icon, "data:image/svg+xml;base64,") || m.Home != "" || m.Sources != nil {
		t.Errorf("got %+v", m)
	}
	readme := textOf(chart, "README.md")
	for _, want := range []string{"helm install efs-stunnel efs-stunnel-1.2.3.tgz --version 1.2.3", "| `manager.replicas` | `2` |", "| `storageClasses` |"} {
		if !strings.Contains(readme, want) {
			t.Errorf("the README lacks %q:\n%s", want, readme)
		}
	}
	s := spec(t)
	s.Registry, s.Repository = "registry.example.com/storage", "https://example.com/source"
	archive, err := write(s)
	if err != nil {
		t.Fatal(err)
	}
	chart = load(t, archive)
	if m := chart.Metadata; m.Home != s.Repository || len(m.Sources) != 1 {
		t.Errorf("got %+v", m)
	}
	if want := "efs-stunnel oci://registry.example.com/storage/charts/efs-stunnel "; !strings.Contains(textOf(chart, "README.md"), want) {
		t.Errorf("the README lacks %q", want)
	}
}

// TestNotesNameTheNamespace for the plugin, if it is not the one where it looks.
func TestNotesNameTheNamespace(t *testing.T) {
	chart := loaded(t)
	for in, want := range map[string]bool{"storage": true, "efs-stunnel": false} {
		rendered, err := rendering(t, chart, nil, in, "v1.36.0")
		if err != nil {
			t.Fatal(err)
		}
		notes := rendered["efs-stunnel/templates/NOTES.txt"]
		if got := strings.Contains(notes, "kubectl efs-stunnel status --system-namespace "+in+"\n"); got != want {
			t.Errorf("in %s: want the command %v in:\n%s", in, want, notes)
		}
	}
}

func textOf(chart *helmchart.Chart, name string) string {
	for _, file := range chart.Files {
		if file.Name == name {
			return string(file.Data)
		}
	}
	return ""
}
