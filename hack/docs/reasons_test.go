package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEventsAreRows(t *testing.T) {
	got, err := renderEvents([]name{
		{constant: "EventMade", value: "Made", meaning: "on the claim, volume, Normal: it is there. Use | it"},
		{constant: "EventFileSystemGone", value: "Gone", meaning: "EventFileSystemGone, on the node, Warning, Normal: it has left."},
		{constant: "EventOutOfPorts", value: "OutOfPorts", meaning: "on the ConfigMap: none is free. Wait"},
		{constant: "LabelOther", value: "other"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| `Made` | Normal | claim, volume | it is there | use \\| it |\n",
		"| `Gone` | Warning, Normal | node | it has left | – |\n",
		"| `OutOfPorts` | Warning | ConfigMap | none is free. Wait | raise --stunnel-port-count", // of the condition
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	if strings.Contains(got, "other") {
		t.Errorf("a label is an event:\n%s", got)
	}
	if got, err := renderEvents([]name{{constant: "EventBare", value: "Bare", meaning: "something happened"}}); err == nil {
		t.Errorf("an event without its object is no error:\n%s", got)
	}
}

func TestProblemsAreRows(t *testing.T) {
	got := renderProblems([]name{
		{constant: "ReasonDied", kind: "Reason", value: "Died", meaning: "it is too old for 1.2. EFS_CA_FILE; Again"},
		{constant: "ProbeDenied", value: "Denied", meaning: "refused. As another"},
		{constant: "StateFailed", kind: "State", value: "failed"}, {constant: "reasonHidden", kind: "Reason", value: "Hidden"},
	}, "Reason")
	want := "\n| reason | meaning | what to do |\n|---|---|---|\n" +
		"| `Died` | it is too old for 1.2 | EFS_CA_FILE; Again |\n| `ProbeDenied` | refused | as another |\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows mismatch (-want +got):\n%s", diff)
	}
}

func TestRowsLinkToHeadings(t *testing.T) {
	fresh := map[string]string{"page": "\n| `TwoWords` | a |\n| `Other` | b |\n\n### `TwoWords`\n", "wrong": "\n| `Other` | b |\n\n### `TwoWords`\n"}
	if err := linkHeadings(fresh, "page"); err != nil {
		t.Fatal(err)
	}
	if want := "\n| [`TwoWords`](#twowords) | a |\n| `Other` | b |\n"; !strings.Contains(fresh["page"], want) {
		t.Errorf("no %s in\n%s", want, fresh["page"])
	}
	if err := linkHeadings(fresh, "wrong"); err == nil {
		t.Error("a heading about what no row has is no error")
	}
}
