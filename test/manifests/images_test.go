package manifests

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestImagesListTheirPackages: a scanner reports a vulnerability of OpenSSL only if the image lists
// OpenSSL. The test uses the shell for stunnel: any program with libraries will do.
func TestImagesListTheirPackages(t *testing.T) {
	if _, err := exec.LookPath("dpkg-query"); err != nil {
		t.Skip("this is no Debian")
	}
	out := t.TempDir()
	if output, err := exec.CommandContext(t.Context(), "../../hack/images/collect", out, "/bin/sh").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	for image, want := range map[string][]string{
		"certificates": {"base-files", "ca-certificates"},
		"stunnel":      {"base-files", "ca-certificates", "dash", "libc6", "libgcc-s1"},
	} {
		entries, err := os.ReadDir(filepath.Join(out, image, "var/lib/dpkg/status.d"))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, entry := range entries {
			got = append(got, entry.Name())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("packages of %s mismatch (-want +got):\n%s", image, diff)
		}
	}
	for _, file := range []string{
		"certificates/etc/os-release", "certificates/etc/ssl/certs/ca-certificates.crt", "certificates/var/lib/dpkg/status.d/ca-certificates",
		"stunnel/etc/os-release", "stunnel/usr/local/bin/stunnel", "roots/etc/efs-stunnel/amazon-roots.pem", "stunnel/var/lib/dpkg/status.d/libc6",
	} {
		if info, err := os.Stat(filepath.Join(out, file)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", file, err)
		}
	}
	if _, err := os.Stat(filepath.Join(out, "stunnel/bin")); err == nil {
		t.Error("the program's own folder is left in the image")
	}
}

// TestPackageOfDivertedLoaderIsFound: in Debian 13, dpkg knows only a diversion of the loader's path. All other files
// are here of one package: what a search for each would find, TestImagesListTheirPackages has seen.
func TestPackageOfDivertedLoaderIsFound(t *testing.T) {
	if _, err := exec.LookPath("dpkg-query"); err != nil {
		t.Skip("this is no Debian")
	}
	programs := t.TempDir()
	if err := os.WriteFile(filepath.Join(programs, "dpkg-query"), []byte(`#!/bin/sh
if [ "$1" = --status ]; then echo "Package: $2"; exit; fi
shift
for file; do
	case $file in
	/usr/lib*/ld-linux-*) echo "libc6:amd64: $file" ;;
	/lib*/ld-linux-*) echo "diversion by libc6 from: $file"; echo "diversion by libc6 to: $file.usr-is-merged" ;;
	*) echo "other: $file" ;;
	esac
done
`), 0o755); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	collect := exec.CommandContext(t.Context(), "../../hack/images/collect", out, "/bin/sh")
	collect.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"))
	if output, err := collect.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	if _, err := os.Stat(filepath.Join(out, "stunnel/var/lib/dpkg/status.d/libc6")); err != nil {
		t.Error(err)
	}
}

// TestDockerfileStagesHaveABase: build arguments select some bases.
func TestDockerfileStagesHaveABase(t *testing.T) {
	dockerfile := string(text(t, "../../hack/images/Dockerfile"))
	defaults, stages := map[string]string{}, map[string]bool{"scratch": true}
	for _, arg := range regexp.MustCompile(`(?m)^ARG (\w+)=(\S+)$`).FindAllStringSubmatch(dockerfile, -1) {
		defaults[arg[1]] = arg[2]
	}
	for _, from := range regexp.MustCompile(`(?m)^FROM (?:--platform=\S+ )?(\S+)(?: AS (\S+))?$`).FindAllStringSubmatch(dockerfile, -1) {
		base := from[1]
		if name, ok := strings.CutPrefix(base, "$"); ok {
			base = defaults[name]
		}
		if !stages[base] && !strings.Contains(base, ":") {
			t.Errorf("%s: %q is no earlier stage and no image with a tag", from[0], base)
		}
		stages[from[2]] = true
	}
	if defaults["AGENT_BASE"] != "stunnel" || defaults["GOFIPS140"] != "off" {
		t.Errorf("got %v, want Debian's stunnel and no FIPS by default", defaults)
	}
	if !regexp.MustCompile(`(?s)\nARG GOFIPS140=.*\nRUN .*go build`).MatchString(dockerfile) {
		t.Error("the programs are built before GOFIPS140 is known")
	}
}

// TestImagesAreBuiltWithTheArgumentsOfTheEnvironment records what a container engine gets.
func TestImagesAreBuiltWithTheArgumentsOfTheEnvironment(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "docker"), []byte("#!/bin/sh\necho \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for arguments, want := range map[string]string{
		"PLATFORMS=":             " --platform linux/amd64,linux/arm64 --target efs-stunnel --build-arg AGENT_BASE=stunnel --sbom",
		"PLATFORMS=linux/arm64":  " --platform linux/arm64 --target efs-stunnel --build-arg AGENT_BASE=stunnel --sbom",
		"GOFIPS140= AGENT_BASE=": " --target efs-stunnel --build-arg AGENT_BASE=stunnel --sbom",
		"GO_IMAGE=example.com/go@sha256:0 DEBIAN_IMAGE=d":   " --target efs-stunnel --build-arg GO_IMAGE=example.com/go@sha256:0 --build-arg DEBIAN_IMAGE=d --build-arg AGENT_BASE=stunnel --sbom",
		"GOFIPS140=v1.0.0 AGENT_BASE=example.com/stunnel:9": " --target efs-stunnel --build-arg GOFIPS140=v1.0.0 --build-arg AGENT_BASE=example.com/stunnel:9 --sbom",
	} {
		cmd := exec.CommandContext(t.Context(), "../../hack/images/push")
		cmd.Env = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"), "REGISTRY=r", "TAG=t")
		cmd.Env = append(cmd.Env, strings.Fields(arguments)...)
		if output, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(output), want) {
			t.Errorf("with %s: %v, want %q in\n%s", arguments, err, want, output)
		}
	}
}
