package main

import (
	"go/parser"
	"go/token"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const parameterSource = `package p

func other() []parameter { return []parameter{{"not", a}} }

func parameters() []parameter {
	return []parameter{
		// the path (default DefaultPath)
		{"path", set},
		// whether
		// it is on
		{"on", boolean(func(c *Class) *bool { return &c.On })},
		// it is off (default true)
		{"off", boolean(func(c *Class) *bool { return &c.Off })},
		// owner (default root)
		{"uid", number},
		{"gid", number},
		// a mode, 1|2 (required)
		{modeName, set},
		// no default
		{"list", set},
	}
}
`

func TestParametersAreReadFromTheSource(t *testing.T) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "p.go", parameterSource, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	values := defaultsOf([]name{{constant: "DefaultPath", value: "/"}, {constant: "modeName", expression: "0o777"}})
	got, err := renderParameters(files, file, "parameters", values)
	if err != nil {
		t.Fatal(err)
	}
	want := "\n| parameter | default | meaning |\n|---|---|---|\n" +
		"| `path` | `/` | the path |\n| `on` | `false` | whether it is on |\n| `off` | `true` | it is off |\n" +
		"| `uid`, `gid` | root | owner |\n| `0777` | required | a mode, 1\\|2 |\n| `list` | – | no default |\n\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows mismatch (-want +got):\n%s", diff)
	}
	if _, err := renderParameters(files, file, "other", values); err == nil {
		t.Error("a parameter without a comment is no error")
	}
}
