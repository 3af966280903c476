package manifests

import (
	"encoding/json"
	"regexp"
	"testing"
)

// TestDashboardFollowsGrafanasRules holds those of the rules of Grafana's dashboard-linter that an edit
// breaks easily. The linter itself is run by hand: CONTRIBUTING.md.
func TestDashboardFollowsGrafanasRules(t *testing.T) {
	var dashboard struct {
		Panels []struct {
			Title, Description string
			Datasource         struct{ UID string }
			FieldConfig        struct{ Defaults struct{ Unit string } }
			Targets            []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text(t, deploy, "components/monitoring/dashboard.json"), &dashboard); err != nil {
		t.Fatal(err)
	}
	fixedRate := regexp.MustCompile(`\brate\([^()]*\[[^$]`)
	bareCounter := regexp.MustCompile(`(^|[^(])\befs_stunnel_\w+_total\b`)
	for _, p := range dashboard.Panels {
		if p.Title == "" || p.Description == "" || p.FieldConfig.Defaults.Unit == "" || p.Datasource.UID != "${datasource}" {
			t.Errorf("panel %+v lacks title, description, unit or data source", p)
		}
		if len(p.Targets) == 0 {
			t.Errorf("panel %q shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			if fixedRate.MatchString(target.Expr) || bareCounter.MatchString(target.Expr) {
				t.Errorf("panel %q: %s: want rate over $__rate_interval, and no bare counter", p.Title, target.Expr)
			}
		}
	}
	if len(dashboard.Panels) < 10 {
		t.Errorf("found only %d panels", len(dashboard.Panels))
	}
}
