package machine

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/hack/lab/internal/artifacts"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
)

func testMachine() Machine {
	return Machine{
		Lab:       state.Lab{Name: "t", Dir: "/lab/t"},
		Node:      state.Node{Name: "node-7", Index: 7, Zone: "us-east-1b"},
		MemoryMiB: 1024, CPUs: 2,
		Image:        artifacts.NodeImage{Disk: "/cache/disk.img", Kernel: "/cache/vmlinuz", Initrd: "/cache/initrd.img"},
		ProgramsDisk: "/cache/programs.img",
		Accelerator:  Emulated,
		PauseImage:   "registry.lab:5000/lab/pause:1",
	}
}

func TestRenderedGuestFilesAreWellFormed(t *testing.T) {
	files, err := render(testMachine().values())
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range files {
		if strings.Contains(string(content), "{{") || strings.Contains(string(content), "<no value>") {
			t.Errorf("%s is not rendered:\n%s", path, content)
		}
	}
	if !json.Valid(files["etc/cni/net.d/10-lab.conflist"]) {
		t.Error("the CNI configuration is not JSON")
	}
	var kubelet map[string]any
	if err := yaml.UnmarshalStrict(files["etc/kubernetes/kubelet.yaml"], &kubelet); err != nil {
		t.Errorf("the kubelet's configuration: %v", err)
	}
	for _, want := range []string{"NODE_NAME=node-7", "NODE_ADDRESS=10.90.2.17", "NODE_IPV6=fd00:90:0:2::17", "ZONE=us-east-1b", "REGION=us-east-1"} {
		if !slices.Contains(strings.Split(string(files["node.env"]), "\n"), want) {
			t.Errorf("node.env lacks %s:\n%s", want, files["node.env"])
		}
	}
}

func TestNodeWithIPv6OnlyHasNoAddressOfIPv4(t *testing.T) {
	m := testMachine()
	m.Node.IPv6Only = true
	files, err := render(m.values())
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range files {
		if match := regexp.MustCompile(`(10|169)\.\d+\.\d+\.\d+`).Find(content); match != nil {
			t.Errorf("%s has %s", path, match)
		}
	}
}

func TestGuestScriptsAreValidShell(t *testing.T) {
	files, err := render(testMachine().values())
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range files {
		if !strings.HasPrefix(path, "bin/") {
			continue
		}
		check := exec.CommandContext(t.Context(), "sh", "-n")
		check.Stdin = strings.NewReader(string(content))
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", path, err, out)
		}
	}
}

// runWaitFor runs the guest's script with fakes of the programs that it calls, and returns its output and
// the modules that it loaded.
func runWaitFor(t *testing.T, command ...string) (printed, loaded string, err error) {
	t.Helper()
	files, err := render(testMachine().values())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, script := range map[string]string{
		"wait-for": string(files["bin/wait-for"]),
		"sleep":    "#!/bin/sh\n",
		"modprobe": "#!/bin/sh\necho \"$@\" >> " + dir + "/loaded\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "wait-for"), append([]string{"the card", "driver"}, command...)...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	log, readErr := os.ReadFile(filepath.Join(dir, "loaded"))
	if readErr != nil && !errors.Is(readErr, os.ErrNotExist) {
		t.Fatal(readErr)
	}
	return string(out), string(log), err
}

func TestWaitForReturnsAtOnceIfTheDeviceExists(t *testing.T) {
	if printed, loaded, err := runWaitFor(t, "true"); err != nil || printed != "" || loaded != "" {
		t.Errorf("printed %q, loaded %q, %v", printed, loaded, err)
	}
}

func TestWaitForReloadsTheDriverOfAMissingDevice(t *testing.T) {
	printed, loaded, err := runWaitFor(t, "grep", "-sq", "^driver", "loaded")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(printed, "lab: waiting for the card\n") || loaded != "-r driver\ndriver\n" {
		t.Errorf("printed %q, loaded %q", printed, loaded)
	}
}

func TestWaitForGivesUpOnADevice(t *testing.T) {
	printed, loaded, err := runWaitFor(t, "false")
	if err == nil || !strings.HasSuffix(printed, "lab: gave up waiting for the card\n") {
		t.Errorf("%v, printed %q", err, printed)
	}
	if tries := strings.Count(loaded, "-r driver\n"); tries != 3 {
		t.Errorf("the driver was loaded again %d times:\n%s", tries, loaded)
	}
}

func TestMachinesOfOneLabShareNoWritableFile(t *testing.T) {
	first := testMachine()
	second := testMachine()
	second.Node = state.Node{Name: "node-8", Index: 8, Zone: "us-east-1b"}
	shared := map[string]bool{first.Image.Disk: true, first.ProgramsDisk: true}
	for i, arg := range first.args() {
		if strings.Contains(arg, "/lab/t/") && arg == second.args()[i] && !shared[arg] {
			t.Errorf("both machines have %s", arg)
		}
	}
}

func TestShellSplitsAQuotedLineIntoItsArguments(t *testing.T) {
	words := []string{"a b", "it's", `"$HOME"`, "*", "", "\\", "line\nline"}
	line := Quote(append([]string{"printf", `%s\0`}, words...))
	out, err := exec.CommandContext(t.Context(), "sh", "-c", line).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); !slices.Equal(got, words) {
		t.Errorf("got %q, want %q", got, words)
	}
}

func TestCounterFrequencyIsTheSameTwice(t *testing.T) {
	first, second := measureCounter(), measureCounter()
	if difference := max(first, second) - min(first, second); first < 100_000 || difference*1000 > first {
		t.Errorf("got %d kHz, then %d kHz", first, second)
	}
}

// The parameters that save an emulated machine work would slow down a machine under KVM.
func TestOnlyEmulatedMachinesHaveParametersForEmulation(t *testing.T) {
	for accelerator, want := range map[Accelerator]bool{Emulated: true, KVM: false} {
		m := testMachine()
		m.Accelerator = accelerator
		line := strings.Join(m.args(), " ")
		for _, parameter := range []string{"tsc=reliable", "tsc_early_khz=", "highres=off", "erms=off"} {
			if strings.Contains(line, parameter) != want {
				t.Errorf("under %s, the machine is started with %s", accelerator, line)
			}
		}
	}
}
