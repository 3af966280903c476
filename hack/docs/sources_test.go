package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/api/status"
)

// TestPagesAreCurrent holds what make verify holds, but for settings, whose programs it would have to build.
func TestPagesAreCurrent(t *testing.T) {
	t.Chdir("../..")
	fresh := map[string]string{}
	if err := addSources(fresh); err != nil {
		t.Fatal(err)
	}
	for path, want := range fresh {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s is stale, %v: run make generate (-want +got):\n%s", path, err, cmp.Diff(want, string(got)))
		}
	}
	if len(fresh) < 5 {
		t.Errorf("found only %d files", len(fresh))
	}
}

func TestAlertIsARow(t *testing.T) {
	r := rule{Alert: "Down", Expr: "up == 0\n  or x{a=~\"b|c\"}", For: "2m"}
	r.Labels.Severity, r.Annotations.RunbookURL = "critical", "docs/page.md#down"
	r.Annotations.Summary = "{{ $labels.tunnel }} has {{ $value | humanize1024 }}B"
	want := "| [`Down`](../troubleshoot/alerts.md#down) | critical | `TUNNEL` has `VALUE`B | `up == 0 or x{a=~\"b\\|c\"}` for 2m |\n"
	if got := renderAlerts([]rule{r}); !strings.Contains(got, want) {
		t.Errorf("no %s in\n%s", want, got)
	}
	r.For, r.Annotations.Description = "", "Look there.\n"
	if got := r.meaning() + r.condition(); !strings.Contains(got, "B. Look there`up == 0") {
		t.Error(got)
	}
}

func TestReasonsHaveTypesAndRemedies(t *testing.T) {
	meanings := map[string]string{"Usable": "it serves", "OutOfPorts": "no port is free", "NoMountJob": "none begins"}
	for want, got := range map[string]string{
		"| `FileSystem` (`efsfs`) | `Usable` | it serves |\n|  | `Listed` |":       renderTypes(meanings),
		"| `OutOfPorts` | `Usable` | no port is free | raise --stunnel-port-count": renderReasons(meanings),
		"| `TableUnreadable` | `TableServed`, `TableStored` |":                     renderReasons(meanings),
		"| `NoMountJob` | none begins | what the message names":                    renderCauses([]name{{value: "NoMountJob"}, {value: "none"}}, meanings, status.CauseRemedy),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
}
