package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// buildahVariable names buildah. The test with it is part of "make dockerfile" only: it takes minutes, and
// installs packages.
const buildahVariable = "EFS_STUNNEL_BUILDAH"

// TestDockerfile builds the Dockerfile as users do, and compares the images with those of a release from the
// same commit. It leaves them in bin/images/dockerfile for the long run of test/e2e.
func TestDockerfile(t *testing.T) {
	buildah := os.Getenv(buildahVariable)
	if buildah == "" {
		t.Skip("want " + buildahVariable + ": make dockerfile sets it")
	}
	if os.Geteuid() != 0 {
		t.Fatal("want root: builds run in mount namespaces")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	saved := filepath.Join(root, "bin/images/dockerfile")
	if err := os.RemoveAll(saved); err != nil { // of an earlier commit
		t.Fatal(err)
	}
	const version = "v0.0.1"
	b := newBuilder(t, root, buildah)
	b.clone(root, version)
	released := b.release(version, runtime.GOARCH)
	debianImage := b.base("DEBIAN_IMAGE", nil)
	goImage := b.base("GO_IMAGE", []string{
		"PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"GOPATH=/go", "GOTOOLCHAIN=local", "GOCACHE=" + goCache, "GOPROXY=file://" + goModules,
	}, "--include=ca-certificates,git", `--customize-hook=mkdir "$1/usr/local/go"`,
		"--customize-hook=sync-in "+b.output("go", "env", "GOROOT")+" /usr/local/go")

	built := b.push("v1", "DEBIAN_IMAGE="+debianImage, "GO_IMAGE="+goImage)
	for _, i := range allImages() {
		t.Run(i.name, func(t *testing.T) {
			expectSameConfig(t, released[i.name], built[i.name])
			expectSameFiles(t, released[i.name], built[i.name])
		})
	}
	t.Run("stunnel runs", func(t *testing.T) {
		got := runIn(t, built["efs-stunnel"], "/usr/local/bin/stunnel", "-version")
		if want := runIn(t, released["efs-stunnel"], "/usr/local/bin/stunnel", "-version"); got != want || !strings.Contains(got, "SYSTEMD") {
			t.Errorf("stunnel of the Dockerfile and of the release, with socket activation, say\n%s\n%s", got, want)
		}
	})
	t.Run("builders without a choice of the target", func(t *testing.T) {
		for _, i := range allImages() {
			image := b.withT(t).build("untargeted/"+i.name+":v1", "--file", "hack/images/Dockerfile", "--build-arg", "TARGET="+i.name, "--build-arg", "AGENT_BASE=stunnel",
				"--build-arg", "DEBIAN_IMAGE="+debianImage, "--build-arg", "GO_IMAGE="+goImage, ".")
			expectSameConfig(t, released[i.name], image)
			expectSameFiles(t, released[i.name], image)
		}
	})
	t.Run("FIPS", func(t *testing.T) { b.withT(t).expectFIPS() })
	if !t.Failed() {
		b.save(saved, built)
	}
}

// release makes the images of a release for one architecture, and returns them.
func (b *builder) release(version, architecture string) map[string]v1.Image {
	b.Helper()
	b.Chdir(b.source)
	o := options{
		version: version, registry: b.plain + "/released",
		out: filepath.Join(b.folder, "dist"), work: filepath.Join(b.folder, "work"),
	}
	b.check(os.MkdirAll(o.out, 0o755))
	s, err := readSource(b.Context())
	b.check(err)
	_, err = buildImages(b.Context(), o, s, architecture)
	b.check(err)
	b.check(pushImages(b.Context(), o))
	return b.allOf("released", version, architecture)
}

// expectSameConfig: only a release knows its version. Builders add theirs, and the usual PATH.
func expectSameConfig(t *testing.T, released, built v1.Image) {
	t.Helper()
	want, got := configOf(t, released), configOf(t, built)
	for _, label := range []string{"org.opencontainers.image.version", "org.opencontainers.image.revision"} {
		delete(want.Labels, label)
	}
	delete(got.Labels, "io.buildah.version")
	if slices.Equal(got.Env, []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}) {
		got.Env = nil
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("configuration mismatch (-release +Dockerfile):\n%s", diff)
	}
}

func configOf(t *testing.T, image v1.Image) v1.Config {
	t.Helper()
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	return file.DeepCopy().Config
}

// file is the content of an image at one path.
type file struct {
	kind string // and owner
	mode int64
	data []byte
}

func filesOf(t *testing.T, image v1.Image) map[string]file {
	t.Helper()
	content := mutate.Extract(image)
	defer content.Close()
	all := map[string]file{}
	for r := tar.NewReader(content); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		kind := fmt.Sprintf("%c%s of %d:%d", header.Typeflag, header.Linkname, header.Uid, header.Gid)
		all[filepath.Clean(header.Name)] = file{kind, header.Mode & 0o7777, data}
	}
}

// expectSameFiles expects equal bytes, with these exceptions:
//
//   - Only the images of a release have the licenses of what they contain: they are distributed.
//   - The package database has more about a package than the package itself: which of its files are
//     settings. It has the fields in another order.
func expectSameFiles(t *testing.T, released, built v1.Image) {
	t.Helper()
	want, got := filesOf(t, released), filesOf(t, built)
	maps.DeleteFunc(want, func(path string, _ file) bool { return path == "licenses" || strings.HasPrefix(path, "licenses/") })
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
		t.Errorf("paths mismatch (-release +Dockerfile):\n%s", diff)
	}
	for path, w := range want {
		g := got[path]
		if strings.HasPrefix(path, "var/lib/dpkg/status.d/") {
			if diff := cmp.Diff(packageFields(string(w.data)), packageFields(string(g.data))); diff != "" {
				t.Errorf("package %s mismatch (-release +Dockerfile):\n%s", path, diff)
			}
			w.data = g.data
		}
		if w.kind != g.kind || w.mode != g.mode || !bytes.Equal(w.data, g.data) {
			t.Errorf("%s is %s, %o, with %d bytes in the release, and %s, %o, with %d bytes from the Dockerfile",
				path, w.kind, w.mode, len(w.data), g.kind, g.mode, len(g.data))
		}
	}
}

// packageFields returns the fields of a package's entry that the package itself has, too.
func packageFields(entry string) map[string]string {
	fields, key := map[string]string{}, ""
	for line := range strings.Lines(entry) {
		if name, value, ok := strings.Cut(line, ":"); ok && !strings.HasPrefix(line, " ") {
			key, line = name, value
		}
		fields[key] += strings.TrimSpace(line) + "\n"
	}
	delete(fields, "Conffiles")
	return fields
}

// runIn runs a program of an image as its user, with the image's files alone, and returns what it prints.
func runIn(t *testing.T, image v1.Image, program string, args ...string) string {
	t.Helper()
	root := unpack(t, image)
	addNull(t, root)
	uid, gid, _ := strings.Cut(configOf(t, image).User, ":")
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: number(t, uid), Gid: number(t, gid)}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
	return string(out)
}

// unpack gives the folder with an image's files.
func unpack(t *testing.T, image v1.Image) string {
	t.Helper()
	root := t.TempDir()
	content := mutate.Extract(image)
	defer content.Close()
	unpack := exec.CommandContext(t.Context(), "tar", "--extract", "--directory", root)
	unpack.Stdin = content
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("unpacking an image: %v: %s", err, out)
	}
	return root
}

// addNull gives a program /dev/null, as every container has it.
func addNull(t *testing.T, root string) {
	t.Helper()
	null := filepath.Join(root, "dev/null")
	if _, err := os.Stat(null); err == nil {
		return
	}
	if err := os.MkdirAll(filepath.Dir(null), 0o755); err != nil {
		t.Fatal(err)
	}
	const device = 1<<8 | 3
	if err := errors.Join(syscall.Mknod(null, syscall.S_IFCHR, device), os.Chmod(null, 0o666)); err != nil {
		t.Fatal(err)
	}
}

func number(t *testing.T, text string) uint32 {
	t.Helper()
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(n)
}

// expectFIPS builds the base of docs/tasks/fips.md, and the images on it, with the default bases.
func (b *builder) expectFIPS() {
	b.Helper()
	page, err := os.ReadFile("docs/tasks/fips.md")
	b.check(err)
	recipe := regexp.MustCompile("(?s)```dockerfile\n(.*?)```").FindSubmatch(page)
	if recipe == nil {
		b.Fatal("docs/tasks/fips.md has no Dockerfile")
	}
	folder := b.TempDir()
	b.check(os.WriteFile(filepath.Join(folder, "Dockerfile"), recipe[1], 0o644))
	b.build("bases/stunnel-fips:1", folder)
	images := b.push("v1-fips", "GOFIPS140=certified", "AGENT_BASE="+b.registry+"/bases/stunnel-fips:1")
	for _, i := range allImages() {
		if got := runIn(b.T, images[i.name], "/usr/local/bin/"+i.programs[0], "version"); !strings.Contains(got, "fips140=v1") {
			b.Errorf("%s says %s, want a version of Go's module", i.programs[0], got)
		}
	}
	got := runIn(b.T, images["efs-stunnel"], "/usr/bin/stunnel4", "-version")
	for _, feature := range []string{"FIPS", "SYSTEMD"} {
		if !strings.Contains(got, feature) {
			b.Errorf("stunnel lacks %s:\n%s", feature, got)
		}
	}
}

// save writes the images as files that `lab load` reads.
func (b *builder) save(folder string, built map[string]v1.Image) {
	b.Helper()
	b.check(os.MkdirAll(folder, 0o755))
	for image, content := range built {
		tag, err := name.NewTag("efs-stunnel/" + image + ":dockerfile")
		b.check(err)
		b.check(tarball.WriteToFile(filepath.Join(folder, image+".tar"), tag, content))
	}
}
