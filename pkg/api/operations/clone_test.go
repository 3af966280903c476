package operations

import (
	"strings"
	"testing"
)

func TestCheckClone(t *testing.T) {
	good := Operation{
		Kind: Clone, Owner: owner("c1", "ns", 1), Path: "/ns/copy",
		Source: Source{SourcePath: "/ns/source", SourceVolume: "pvc-source", SourceClaim: "source", SourceClaimUID: "u"},
	}
	for name, tt := range map[string]struct {
		edit func(*Operation)
		want string // part of the error; "" is none
	}{
		"of a volume":                  {func(*Operation) {}, ""},
		"beside a similar name":        {func(o *Operation) { o.SourcePath = "/ns/copy-2" }, ""},
		"abandoned":                    {func(o *Operation) { o.Source, o.Abandon = Source{}, true }, ""},
		"of nothing":                   {func(o *Operation) { o.SourcePath = "" }, "the path is empty"},
		"of the whole file system":     {func(o *Operation) { o.SourcePath = "/" }, "is the whole file system"},
		"of the ledger":                {func(o *Operation) { o.SourcePath = "/.efs-stunnel" }, "where no volume may be"},
		"of a path outside":            {func(o *Operation) { o.SourcePath = "/ns/../x" }, "has the component .."},
		"of no volume":                 {func(o *Operation) { o.SourceVolume = "" }, "has no name"},
		"of a path in place of a name": {func(o *Operation) { o.SourceVolume = "../x" }, "is no name"},
		"of a claim with a new line":   {func(o *Operation) { o.SourceClaim = "a\nb" }, "control characters"},
		"of a claim without a uid":     {func(o *Operation) { o.SourceClaimUID = "" }, "is empty"},
		"of itself":                    {func(o *Operation) { o.SourcePath = o.Path }, "one inside the other"},
		"into its source":              {func(o *Operation) { o.Path = "/ns/source/copy" }, "one inside the other"},
		"of what it is in":             {func(o *Operation) { o.SourcePath = "/ns/copy/x" }, "one inside the other"},
	} {
		t.Run(name, func(t *testing.T) {
			o := good
			tt.edit(&o)
			err := o.Check()
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestCloneProgressIsReadAsItWasWritten(t *testing.T) {
	want := CloneProgress{Files: 3, Found: 7, Bytes: 1 << 40}
	line, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeCloneProgress(line); err != nil || got != want {
		t.Errorf("%s is read as %+v (%v)", line, got, err)
	}
	for _, text := range []string{"", "time=… level=INFO", "[]", `{"files":2,"found":1}`, `{"files":-1}`, `{"bytes":-1}`} {
		if got, err := DecodeCloneProgress([]byte(text)); err == nil {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}
