package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func good() options {
	return options{version: "v1.2.3", registry: "registry.example.com:5000/storage", download: "https://example.com/v1.2.3"}
}

func TestOptionsAreChecked(t *testing.T) {
	if err := good().check(); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		change func(*options)
		want   string
	}{
		"no version":            {func(o *options) { o.version = "" }, "VERSION="},
		"a version without v":   {func(o *options) { o.version = "1.2.3" }, "VERSION="},
		"a version of two":      {func(o *options) { o.version = "v1.2" }, "VERSION="},
		"build metadata":        {func(o *options) { o.version = "v1.2.3+a" }, "VERSION="},
		"no registry":           {func(o *options) { o.registry = "" }, "REGISTRY="},
		"a registry with a tag": {func(o *options) { o.registry = "example.com/a:b" }, "REGISTRY="},
		"a registry in capital": {func(o *options) { o.registry = "example.com/Storage" }, "REGISTRY="},
		"a download over HTTP":  {func(o *options) { o.download = "http://example.com" }, "DOWNLOAD_URL="},
		"a source over HTTP":    {func(o *options) { o.repository = "http://example.com" }, "REPOSITORY="},
		"a download with a /":   {func(o *options) { o.download = "https://example.com/" }, "DOWNLOAD_URL="},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := good()
			tt.change(&o)
			if err := o.check(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

// TestChartNeedsNoRelease: neither a version nor a registry, nor a tag of git.
func TestChartNeedsNoRelease(t *testing.T) {
	t.Chdir("../..")
	for name, tt := range map[string]struct {
		options options
		want    string
	}{
		"nothing":   {options{}, "efs-stunnel-0.0.0-dev.tgz"},
		"a version": {options{version: "v1.2.3", registry: "registry.example.com/storage", tag: "test"}, "efs-stunnel-1.2.3.tgz"},
	} {
		t.Run(name, func(t *testing.T) {
			o := tt.options
			o.chart, o.out = true, t.TempDir()
			if err := run(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(filepath.Join(o.out, tt.want)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestImagesAreThoseOfTheDockerfile: what is released is what users build.
func TestImagesAreThoseOfTheDockerfile(t *testing.T) {
	text, err := os.ReadFile("../images/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	stages := map[string]string{}
	for stage := range strings.SplitSeq(string(text), "\nFROM ") {
		if _, name, ok := strings.Cut(strings.SplitN(stage, "\n", 2)[0], " AS "); ok && strings.Contains(stage, "\nENTRYPOINT ") {
			stages[name] = stage
		}
	}
	copied := regexp.MustCompile(`(?m)^COPY --from=programs (.*) /usr/local/bin/$`)
	for _, i := range allImages() {
		stage := stages[i.name]
		delete(stages, i.name)
		var programs []string
		if m := copied.FindStringSubmatch(stage); m != nil {
			for program := range strings.FieldsSeq(m[1]) {
				programs = append(programs, filepath.Base(program))
			}
		}
		if diff := cmp.Diff(i.programs, programs); diff != "" {
			t.Errorf("programs of %s mismatch (-release +Dockerfile):\n%s", i.name, diff)
		}
		for _, want := range []string{"\nUSER " + i.user + "\n", "\nENTRYPOINT [\"/usr/local/bin/" + i.programs[0] + "\"]\n"} {
			if !strings.Contains(stage+"\n", want) {
				t.Errorf("image %s: the Dockerfile does not have %q", i.name, want)
			}
		}
		if fromDebian := strings.Contains(stage, "--from=system"); fromDebian != (i.system != nil) {
			t.Errorf("image %s has files of Debian in the release or in the Dockerfile only", i.name)
		}
	}
	if len(stages) > 0 {
		t.Errorf("the release lacks the images %q", slices.Collect(maps.Keys(stages)))
	}
}

func TestSumsAreThoseOfTheFiles(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"b", "a"} {
		if err := os.WriteFile(filepath.Join(folder, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeSums(folder); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(folder, sumsFile))
	const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	if want := empty + "  a\n" + empty + "  b\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestSignature with a program in place of cosign.
func TestSignature(t *testing.T) {
	folder, bin := t.TempDir(), t.TempDir()
	t.Setenv("PATH", bin)
	if err := findSigner("cosign.key"); err == nil || !strings.Contains(err.Error(), "cosign is not installed") {
		t.Errorf("got %v, want that cosign is not installed", err)
	}
	if err := findSigner(""); err != nil {
		t.Errorf("a release without a signature needs cosign: %v", err)
	}
	script := "#!/bin/sh\necho \"$@\" > \"$6\"\n"
	if err := os.WriteFile(filepath.Join(bin, "cosign"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := findSigner("cosign.key"); err != nil {
		t.Fatal(err)
	}
	if err := sign(t.Context(), folder, "cosign.key"); err != nil {
		t.Fatal(err)
	}
	sums := filepath.Join(folder, sumsFile)
	got, err := os.ReadFile(sums + ".bundle")
	if want := "sign-blob --yes --key cosign.key --bundle " + sums + ".bundle " + sums + "\n"; err != nil || string(got) != want {
		t.Errorf("cosign was called with %q, %v", got, err)
	}
}

// TestWorkflowTestsWithoutSecrets: what the tests download and run must be able to neither sign nor push.
func TestWorkflowTestsWithoutSecrets(t *testing.T) {
	workflow, err := os.ReadFile("../../.github/workflows/release.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, jobs, _ := strings.Cut(string(workflow), "\npermissions:\n  contents: read\n")
	tests, _, found := strings.Cut(jobs, "\n  release:\n")
	if !found || !strings.Contains(tests, "make ci") || strings.Contains(tests, "secrets.") {
		t.Errorf("want make ci in a job of its own, with rights to read, and no secret in:\n%s", tests)
	}
}

// TestWorkflowRunsTargets that the Makefile has, because nothing else tests it before a release.
func TestWorkflowRunsTargets(t *testing.T) {
	workflow, err := os.ReadFile("../../.github/workflows/release.yaml")
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	var called []string
	for _, m := range regexp.MustCompile(`(?m)^\s+(?:run: )?make (\S+)$`).FindAllStringSubmatch(string(workflow), -1) {
		called = append(called, m[1])
		if !strings.Contains(string(makefile), "\n"+m[1]+": ") {
			t.Errorf("make %s: the Makefile has no such target", m[1])
		}
	}
	if diff := cmp.Diff([]string{"ci", "release", "scan", "release-push"}, called); diff != "" {
		t.Errorf("targets mismatch (-want +got):\n%s", diff)
	}
}
