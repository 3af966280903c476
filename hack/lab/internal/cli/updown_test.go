package cli

import (
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
)

// applied applies the command line of `up` to settings.
func applied(t *testing.T, s state.Settings, isNew bool, args ...string) (state.Settings, error) {
	t.Helper()
	flags := pflag.NewFlagSet("up", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	newUpFlags(flags, new(state.DefaultSettings()))
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	err := applyUpFlags(flags, &s, isNew)
	return s, err
}

func TestUpChangesOnlySettingsOfGivenFlags(t *testing.T) {
	before := state.DefaultSettings()
	before.NodeMemoryMiB, before.Audit, before.RegistryPort = 4096, true, 5001
	got, err := applied(t, before, false, "--controller-manager-qps", "5000", "--audit=false")
	if err != nil {
		t.Fatal(err)
	}
	want := before
	want.ControllerManagerQPS, want.Audit = 5000, false
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

func TestUpWithoutFlagsKeepsAllSettings(t *testing.T) {
	before := state.DefaultSettings()
	before.APIServerPort = 6444
	got, err := applied(t, before, false)
	if diff := cmp.Diff(before, got); diff != "" || err != nil {
		t.Errorf("settings (-want +got):\n%s%v", diff, err)
	}
}

func TestNewLabHasGivenPortAndNodeCount(t *testing.T) {
	got, err := applied(t, state.DefaultSettings(), true, "--apiserver-port", "6444", "--nodes", "0")
	if err != nil || len(got.Nodes) != 0 || got.APIServerPort != 6444 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestErrorsNameFlagValueAndWhatIsAllowed(t *testing.T) {
	for _, tt := range []struct{ flag, value, want string }{
		{"--nodes", "-1", "--nodes -1: want 0 to 100"},
		{"--nodes", "x", "--nodes"},
		{"--node-memory", "100", "--node-memory 100: want at least 768"},
		{"--node-cpus", "0", "--node-cpus 0: want at least 1"},
		{"--apiserver-port", "65536", "--apiserver-port 65536: want 1 to 65535"},
		{"--registry-port", "-1", "--registry-port -1: want 1 to 65535"},
		{"--efs-api-port", "70000", "--efs-api-port 70000: want 1 to 65535"},
		{"--controller-manager-qps", "0", "--controller-manager-qps 0: want more than 0"},
		{"--controller-manager-burst", "0", "--controller-manager-burst 0: want at least 1"},
	} {
		if _, err := applied(t, state.DefaultSettings(), true, tt.flag, tt.value); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %s: %v, want %q", tt.flag, tt.value, err, tt.want)
		}
	}
}
