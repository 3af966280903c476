package manifests

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// prometheusVariable names a folder with Debian's promtool, as `bin/lab prometheus` prints it.
const prometheusVariable = "PROMETHEUS_PATH"

// TestAlertsFire runs testdata/alerts.yaml. Of the annotations the tests show only the summary.
func TestAlertsFire(t *testing.T) {
	programs := os.Getenv(prometheusVariable)
	if programs == "" {
		t.Skip(prometheusVariable + " names no folder with promtool")
	}
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "alerts.yaml"), text(t, "testdata/alerts.yaml"))
	writeFile(t, filepath.Join(dir, "rules.yaml"), rulesForPrometheus(t))
	for _, command := range [][]string{{"check", "rules", "rules.yaml"}, {"test", "rules", "alerts.yaml"}} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(programs, "promtool"), command...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(command, " "), err, out)
		}
	}
}

// rulesForPrometheus returns the content of a file of rules.
func rulesForPrometheus(t *testing.T) []byte {
	t.Helper()
	var all []rule
	for _, r := range rules(t) {
		r.Annotations = map[string]string{"summary": r.Annotations["summary"]}
		all = append(all, r)
	}
	content, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "all", "rules": all}}})
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func writeFile(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestEachAlertHasATest: one in which it fires, and in the first test, where none fires, a series of each
// metric that it reads.
func TestEachAlertHasATest(t *testing.T) {
	var file struct {
		Tests []struct {
			Name        string
			InputSeries []struct{ Series string } `json:"input_series"`
			AlertTests  []struct {
				AlertName string
				Alerts    []any `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		}
	}
	if err := yaml.Unmarshal(text(t, "testdata/alerts.yaml"), &file); err != nil {
		t.Fatal(err)
	}
	fire := map[string]bool{}
	for _, test := range file.Tests {
		for _, alert := range test.AlertTests {
			if len(alert.Alerts) > 0 {
				fire[alert.AlertName] = true
			}
		}
	}
	all := rules(t)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(all)), slices.Sorted(maps.Keys(fire))); diff != "" {
		t.Errorf("alerts mismatch (-rules +fire in a test):\n%s", diff)
	}
	healthy := map[string]bool{}
	for _, series := range file.Tests[0].InputSeries {
		name, _, _ := strings.Cut(series.Series, "{")
		healthy[name] = true
	}
	for _, rule := range all {
		for _, metric := range metricName.FindAllString(rule.Expr, -1) {
			if !healthy[metric] {
				t.Errorf("the test %q has no series of %s, which alert %s reads", file.Tests[0].Name, metric, rule.Alert)
			}
		}
	}
}

// TestEachAlertHasARunbook: a section of docs/troubleshoot/alerts.md with the alert's name.
func TestEachAlertHasARunbook(t *testing.T) {
	page := string(text(t, "../../docs/troubleshoot/alerts.md"))
	for name, rule := range rules(t) {
		if want := "docs/troubleshoot/alerts.md#" + strings.ToLower(name); rule.Annotations["runbook_url"] != want {
			t.Errorf("runbook_url of %s is %q, want %q", name, rule.Annotations["runbook_url"], want)
		}
		if strings.Count(page, "\n## "+name+"\n") != 1 {
			t.Errorf("docs/troubleshoot/alerts.md has no section %q", "## "+name)
		}
	}
}
