package manifests

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// rule is an alert.
type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// rules are all alerts, by name.
func rules(t *testing.T) map[string]rule {
	t.Helper()
	var object struct {
		Spec struct{ Groups []struct{ Rules []rule } }
	}
	if err := yaml.Unmarshal(text(t, deploy, "components/monitoring/rules.yaml"), &object); err != nil {
		t.Fatal(err)
	}
	found := map[string]rule{}
	for _, group := range object.Spec.Groups {
		for _, rule := range group.Rules {
			found[rule.Alert] = rule
		}
	}
	return found
}

var metricName = regexp.MustCompile(`\b(efs_stunnel_\w+|kube_\w+|up)\b`)

// TestAlertsUseDocumentedMetrics: an expression with an unknown name never fires. test/docs compares the
// documented metrics with the programs.
func TestAlertsUseDocumentedMetrics(t *testing.T) {
	documented, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for alert, rule := range rules(t) {
		for _, name := range metricName.FindAllString(rule.Expr, -1) {
			if strings.HasPrefix(name, "efs_") && !strings.Contains(string(documented), "\n| `"+name+"` |") {
				t.Errorf("alert %s asks for %s, which is not in docs/reference/metrics.md", alert, name)
			}
		}
	}
}

// TestNodeWithoutAgentHasAnAlert: not with the agent's own metrics.
func TestNodeWithoutAgentHasAnAlert(t *testing.T) {
	all := rules(t)
	if want := `kube_daemonset_status_number_unavailable{daemonset="` + wellknown.NodeDaemonSet + `"} > 0`; all["EFSNodeWithoutAgent"].Expr != want {
		t.Errorf("got %q, want %q", all["EFSNodeWithoutAgent"].Expr, want)
	}
	// Prometheus' operator names a job for its Service.
	service := ""
	for _, text := range documents(t, filepath.Join(deploy, "components/monitoring")) {
		var object struct {
			Kind     string
			Metadata struct{ Name string }
			Spec     struct{ Selector map[string]string }
		}
		if err := yaml.Unmarshal([]byte(text), &object); err == nil && object.Kind == "Service" && object.Spec.Selector["app.kubernetes.io/component"] == "node-agent" {
			service = object.Metadata.Name
		}
	}
	if want := `up{job="` + service + `"} == 0`; all["EFSAgentNotScraped"].Expr != want {
		t.Errorf("got %q, want %q", all["EFSAgentNotScraped"].Expr, want)
	}
}
