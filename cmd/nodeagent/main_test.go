package main

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/program"
)

func TestSuperviseExecutesTheProgramBesideIt(t *testing.T) {
	var path string
	var argv []string
	failing := func(p string, a, _ []string) error {
		path, argv = p, a
		return errors.New("no such file")
	}
	var stderr bytes.Buffer
	code := execSupervisor([]string{"--log-level", "DEBUG"}, func() (string, error) { return "/opt/bin/nodeagent", nil }, failing, &stderr)
	if want := "/opt/bin/nodeagent-supervise"; path != want || !slices.Equal(argv, []string{want, "--log-level", "DEBUG"}) {
		t.Errorf("got %s with %q", path, argv)
	}
	if code != program.ExitFailed || !strings.Contains(stderr.String(), "nodeagent-supervise: no such file") {
		t.Errorf("got exit code %d and %q, want a line that says what is missing", code, stderr.String())
	}
}

func TestSuperviseWithoutOwnPath(t *testing.T) {
	var stderr bytes.Buffer
	unknown := func() (string, error) { return "", errors.New("no path") }
	if code := execSupervisor(nil, unknown, nil, &stderr); code != program.ExitFailed || !strings.Contains(stderr.String(), "no path") {
		t.Errorf("got exit code %d and %q", code, stderr.String())
	}
}
