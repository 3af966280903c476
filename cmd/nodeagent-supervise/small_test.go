package main

import (
	"os/exec"
	"strings"
	"testing"
)

// TestLinksNothingLarge: it is started for every probe, and the supervisor stays on every node.
// That it links nothing of Kubernetes' API and of AWS is shown in test/layout.
func TestLinksNothingLarge(t *testing.T) {
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no Go toolchain: ", err)
	}
	output, err := exec.CommandContext(t.Context(), tool, "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dep := range strings.FieldsSeq(string(output)) {
		if dep == "net/http" || dep == "crypto/tls" {
			t.Errorf("it links %s", dep)
		}
	}
}
