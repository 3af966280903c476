package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const longHelp = `Usage:
  thing [flags]
  thing version

First things:
      --wait duration   time between two tries, which
                        is long [$WAIT] (default
                        5m)
      --on              whether it is on

Other things:
      --names names     names of a|b
      --count number    how many; 0 is any
`

const shortHelp = "Flags of thing run:\n  -wait duration\n    \ttime (default 5m0s)\n  -format string\n    \ttext or json (default \"text\")\n"

func TestHelpIsParsed(t *testing.T) {
	tests := map[string]struct {
		help  string
		parse func(string) ([]group, error)
		want  []group
	}{
		"of package settings": {longHelp, parseLongHelp, []group{
			{"First things", []setting{
				{"--wait", "duration", "WAIT", "5m", "time between two tries, which is long"},
				{"--on", "", "", "", "whether it is on"},
			}},
			{"Other things", []setting{
				{"--names", "names", "", "", "names of a|b"},
				{"--count", "number", "", "", "how many; 0 is any"},
			}},
		}},
		"of package flag": {shortHelp, parseShortHelp, []group{{"", []setting{
			{"--wait", "duration", "", "5m0s", "time"},
			{"--format", "string", "", "text", "text or json"},
		}}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := tt.parse(tt.help)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(group{}, setting{})); diff != "" {
				t.Errorf("settings mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnknownHelpIsAnError(t *testing.T) {
	for name, help := range map[string]string{
		"nothing": "", "no settings": "Usage:\n  thing\n", "another form": "First:\n  -x  one\n",
	} {
		if got, err := parseLongHelp(help); err == nil {
			t.Errorf("%s: got %v", name, got)
		}
		if got, err := parseShortHelp(help); err == nil {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestSettingsAreWrittenBetweenTheirMarkers(t *testing.T) {
	page := "before\n" + marker("begin", "thing") + "\nold\n" + marker("end", "thing") + "\nafter\n"
	groups, err := parseLongHelp(longHelp)
	if err != nil {
		t.Fatal(err)
	}
	got, err := replace(page, "thing", render(groups))
	if err != nil {
		t.Fatal(err)
	}
	want := "before\n" + marker("begin", "thing") + `

First things:

| flag | variable | default | meaning |
|---|---|---|---|
| ` + "`--wait duration` | `WAIT` | `5m`" + ` | time between two tries, which is long |
| ` + "`--on` | – | `false`" + ` | whether it is on |

Other things:

| flag | variable | default | meaning |
|---|---|---|---|
| ` + "`--names names` | – | –" + ` | names of a\|b |
| ` + "`--count number` | – | `0`" + ` | how many; 0 is any |

` + marker("end", "thing") + "\nafter\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("page mismatch (-want +got):\n%s", diff)
	}
	if again, err := replace(got, "thing", render(groups)); err != nil || again != got {
		t.Errorf("a second run changes the page again: %v", err)
	}
	if _, err := replace("no markers", "thing", ""); err == nil {
		t.Error("a page without markers is no error")
	}
}
