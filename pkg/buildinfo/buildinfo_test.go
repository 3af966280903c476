package buildinfo

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestFrom(t *testing.T) {
	tests := map[string]struct {
		build debug.BuildInfo
		want  string
	}{
		"a release": {
			debug.BuildInfo{GoVersion: "go1.26", Main: debug.Module{Version: "v1.2.3"}},
			"v1.2.3 go1.26",
		},
		"a checkout": {
			debug.BuildInfo{GoVersion: "go1.26", Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{
				{Key: "vcs.time", Value: "2026-01-02"}, {Key: "vcs.revision", Value: "abc"},
			}},
			"(devel) abc go1.26",
		},
		"nothing known": {debug.BuildInfo{}, "unknown"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := from(&tt.build).String(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestReadKnowsTheToolchain(t *testing.T) {
	if got := Read(); !strings.HasPrefix(got.Go, "go") || got.Version == "" {
		t.Errorf("got %+v", got)
	}
}
