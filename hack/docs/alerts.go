package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

const (
	alertsPage = "docs/reference/alerts.md"
	rulesFile  = "deploy/kustomize/components/monitoring/rules.yaml"
)

// rule is an alert of a PrometheusRule.
type rule struct {
	Alert       string
	Expr        string
	For         string
	Labels      struct{ Severity string }
	Annotations struct {
		RunbookURL  string `json:"runbook_url"`
		Summary     string
		Description string
	}
}

// addAlerts writes the alerts of the component monitoring.
func addAlerts(fresh map[string]string) error {
	text, err := os.ReadFile(rulesFile)
	if err != nil {
		return fmt.Errorf("reading the alerts: %w", err)
	}
	var rules struct {
		Spec struct{ Groups []struct{ Rules []rule } }
	}
	if err := yaml.Unmarshal(text, &rules); err != nil {
		return fmt.Errorf("parsing %s: %w", rulesFile, err)
	}
	var all []rule
	for _, group := range rules.Spec.Groups {
		all = append(all, group.Rules...)
	}
	return insert(fresh, alertsPage, "alerts", renderAlerts(all))
}

func renderAlerts(all []rule) string {
	var text strings.Builder
	text.WriteString("\n| alert and runbook | severity | meaning | fires while |\n|---|---|---|---|\n")
	for _, r := range all {
		_, anchor, _ := strings.Cut(r.Annotations.RunbookURL, "#")
		fmt.Fprintf(&text, "| [`%s`](../troubleshoot/alerts.md#%s) | %s | %s | %s |\n", r.Alert, anchor, r.Labels.Severity, r.meaning(), r.condition())
	}
	return text.String() + "\n"
}

var (
	labelTemplate = regexp.MustCompile(`\{\{ *\$labels\.(\w+) *\}\}`)
	valueTemplate = regexp.MustCompile(`\{\{ *\$value[^}]*\}\}`)
)

// meaning returns summary and description, with names in capitals in place of what Prometheus fills in.
func (r rule) meaning() string {
	text := strings.TrimSuffix(r.Annotations.Summary, ".")
	if r.Annotations.Description != "" {
		text += ". " + strings.TrimSuffix(strings.TrimSpace(r.Annotations.Description), ".")
	}
	text = labelTemplate.ReplaceAllStringFunc(text, func(found string) string {
		return "`" + strings.ToUpper(labelTemplate.FindStringSubmatch(found)[1]) + "`"
	})
	return cell(valueTemplate.ReplaceAllString(text, "`VALUE`"))
}

// condition returns the expression, and how long it has to hold.
func (r rule) condition() string {
	text := code(strings.Join(strings.Fields(r.Expr), " "))
	if r.For != "" {
		text += " for " + r.For
	}
	return text
}
