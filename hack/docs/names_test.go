package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const keys = `package keys

const prefix = "example." + Domain + "/"

const Domain = "com"

const (
	// LabelOn, on a claim, is ValueTrue or
	// nothing, as AnnotationPath says.
	LabelOn   = prefix + "on"
	LabelBare = "bare"
	LabelLate = prefix + "late" // comes | later
	// LabelOne and LabelTwo count.
	LabelOne = "one"
	LabelTwo = "two"
)

// AnnotationPath names a path.
const AnnotationPath = prefix + "path"

const ValueTrue = "true"
`

func TestNamesAreReadFromTheSource(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "keys.go"), []byte(keys), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := constants(folder)
	if err != nil {
		t.Fatal(err)
	}
	want := "\n| label | meaning |\n|---|---|\n" +
		"| `example.com/on` | on a claim, is `true` or nothing, as `example.com/path` says. |\n" +
		"| `bare` | – |\n" +
		"| `example.com/late` | comes \\| later |\n" +
		"| `one` | `one` and `two` count. |\n" +
		"| `two` | – |\n\n"
	if diff := cmp.Diff(want, renderNames(all, "Label")); diff != "" {
		t.Errorf("labels mismatch (-want +got):\n%s", diff)
	}
	want = "\n| annotation | meaning |\n|---|---|\n| `example.com/path` | names a path. |\n\n"
	if diff := cmp.Diff(want, renderNames(all, "Annotation")); diff != "" {
		t.Errorf("annotations mismatch (-want +got):\n%s", diff)
	}
}
