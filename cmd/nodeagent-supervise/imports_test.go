package main

import (
	"os/exec"
	"strings"
	"testing"
)

// TestProgramLinksNoLargePackage keeps the memory of supervisor and probe small. test/layout forbids
// packages of the Kubernetes API and of AWS.
func TestProgramLinksNoLargePackage(t *testing.T) {
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
			t.Errorf("the program links %s", dep)
		}
	}
}
