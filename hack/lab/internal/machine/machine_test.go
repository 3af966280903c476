package machine

import (
	"encoding/json"
	"os/exec"
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

func TestGuestFilesAreCompleteAndWellFormed(t *testing.T) {
	files, err := render(testMachine().values())
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range files {
		if strings.Contains(string(content), "{{") || strings.Contains(string(content), "<no value>") {
			t.Errorf("%s is not filled in:\n%s", path, content)
		}
	}
	if !json.Valid(files["etc/cni/net.d/10-lab.conflist"]) {
		t.Error("the CNI configuration is not JSON")
	}
	var kubelet map[string]any
	if err := yaml.UnmarshalStrict(files["etc/kubernetes/kubelet.yaml"], &kubelet); err != nil {
		t.Errorf("the kubelet's configuration: %v", err)
	}
	for _, want := range []string{"NODE_NAME=node-7", "NODE_ADDRESS=10.90.2.17", "ZONE=us-east-1b", "REGION=us-east-1"} {
		if !slices.Contains(strings.Split(string(files["node.env"]), "\n"), want) {
			t.Errorf("node.env lacks %s:\n%s", want, files["node.env"])
		}
	}
}

func TestGuestScriptsAreShell(t *testing.T) {
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

func TestMachinesOfOneLabShareNothingThatTheyWrite(t *testing.T) {
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

func TestQuoteSurvivesAShell(t *testing.T) {
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
