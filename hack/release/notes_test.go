package main

import (
	"strings"
	"testing"
)

const changes = `# Changelog

## [Unreleased]

## [1.2.3] - 2026-01-02

### Added

- A [plugin](docs/reference/plugin.md#rights), see [EFS](https://aws.amazon.com/efs/).

## [1.2.2] - 2026-01-01

- Older.
`

func TestNotesAreTheVersionsSection(t *testing.T) {
	got, err := cutNotes(changes, "v1.2.3")
	if want := "### Added\n\n- A plugin, see [EFS](https://aws.amazon.com/efs/).\n"; err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestVersionWithoutNotesIsRefused(t *testing.T) {
	for version, want := range map[string]string{"v1.2": "no section", "v2.0.0": "no section", "v1.2.4": "is empty"} {
		if _, err := cutNotes(changes+"## [1.2.4] - 2026-01-03\n", version); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", version, err, want)
		}
	}
}
