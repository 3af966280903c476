package buildinfo

import (
	"crypto/fips140"
	"os"
	"os/exec"
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
			"v1.2.3 go1.26 fips140=off",
		},
		"a checkout": {
			debug.BuildInfo{GoVersion: "go1.26", Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{
				{Key: "vcs.time", Value: "2026-01-02"}, {Key: "vcs.revision", Value: "abc"},
			}},
			"(devel) abc go1.26 fips140=off",
		},
		"nothing known": {debug.BuildInfo{}, "unknown fips140=off"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := from(&tt.build, "off").String(); got != tt.want {
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

// TestFIPSModuleInUseIsReported runs itself in both of Go's modes, which a process cannot change.
func TestFIPSModuleInUseIsReported(t *testing.T) {
	const variable = "BUILDINFO_TEST_FIPS140"
	if want := os.Getenv(variable); want != "" {
		if want == "on" {
			want = fips140.Version()
		}
		if got := Read().String(); !strings.HasSuffix(got, " fips140="+want) {
			t.Errorf("got %q, want %q at its end", got, want)
		}
		return
	}
	for _, mode := range []string{"off", "on"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "GODEBUG=fips140="+mode, variable+"="+mode)
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("with GODEBUG=fips140=%s: %v\n%s", mode, err, output)
		}
	}
}
