package main

import (
	"compress/gzip"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"gnuthought.com/efs-stunnel/hack/release/internal/debian"
)

// builder runs buildah, and a registry that stands in for Docker Hub and for the user's own.
type builder struct {
	*testing.T
	buildah  string // program; "" for a release alone
	folder   string // of all that is made
	source   string // a clone of the repository, as a user has one
	registry string // its address for buildah, with TLS
	plain    string // its address for the test, without
}

// newBuilder makes the folder. It is the same in each run, so that a run removes what a killed one has left. Its
// name hides its Go files from tests that read the repository.
func newBuilder(t *testing.T, root, buildah string) *builder {
	t.Helper()
	folder := filepath.Join(root, "bin/.dockerfile")
	b := &builder{T: t, buildah: buildah, folder: folder, source: filepath.Join(folder, "source")}
	ours := b.ownsRecord()
	b.removeAll()
	t.Cleanup(b.removeAll)
	for _, made := range []string{"blobs", "programs", "temporary"} {
		b.check(os.MkdirAll(filepath.Join(folder, made), 0o755))
	}
	if ours {
		b.check(os.WriteFile(filepath.Join(folder, recordMark), nil, 0o644))
		t.Cleanup(func() { b.check(os.RemoveAll(record)) })
	}
	b.serve()
	if buildah != "" {
		b.configure()
	}
	return b
}

// record is the folder where buildah notes which registries have which layers. No setting moves it.
const record = "/var/lib/containers"

// recordMark is a file in the folder that says that buildah had no record before.
const recordMark = "record"

// ownsRecord reports whether the record is, or will be, this test's, also that of a killed run.
func (b *builder) ownsRecord() bool {
	b.Helper()
	_, none := os.Stat(record)
	_, unmarked := os.Stat(filepath.Join(b.folder, recordMark))
	return errors.Is(none, fs.ErrNotExist) || unmarked == nil
}

// serve starts the registry.
func (b *builder) serve() {
	b.Helper()
	handler := registry.New(
		registry.WithBlobHandler(registry.NewDiskBlobHandler(filepath.Join(b.folder, "blobs"))), registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)),
	)
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	b.Cleanup(plain.Close)
	b.Cleanup(secure.Close)
	b.plain, b.registry = plain.Listener.Addr().String(), secure.Listener.Addr().String()
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	b.check(os.WriteFile(b.authority(), certificate, 0o644))
}

// authority returns the path of the file with the registry's certificate.
func (b *builder) authority() string { return filepath.Join(b.folder, "authority.pem") }

// withT returns the same builder for a subtest.
func (b *builder) withT(t *testing.T) *builder {
	t.Helper()
	other := *b
	other.T = t
	return &other
}

// configure sets what buildah reads, so that hack/images/push runs as it is. Programs are compiled with the
// test's own cache: Go reuses what has equal sources, flags and compiler only. Modules come from the test's
// cache, too, which builds cannot change.
func (b *builder) configure() {
	b.Helper()
	files := map[string]string{
		"storage.conf": fmt.Sprintf("[storage]\ndriver = \"overlay\"\ngraphroot = %q\nrunroot = %q\n",
			filepath.Join(b.folder, "storage"), filepath.Join(b.folder, "run")),
		"registries.conf": fmt.Sprintf("unqualified-search-registries = [\"docker.io\"]\n"+
			"[[registry]]\nprefix = \"docker.io\"\nlocation = %q\n", b.registry),
		"containers.conf": fmt.Sprintf("[containers]\nvolumes = [%q, %q]\n",
			b.output("go", "env", "GOCACHE")+":"+goCache,
			filepath.Join(b.output("go", "env", "GOMODCACHE"), "cache/download")+":"+goModules+":ro"),
	}
	for file, text := range files {
		b.check(os.WriteFile(filepath.Join(b.folder, file), []byte(text), 0o644))
	}
	b.Setenv("CONTAINERS_STORAGE_CONF", filepath.Join(b.folder, "storage.conf"))
	b.Setenv("CONTAINERS_REGISTRIES_CONF", filepath.Join(b.folder, "registries.conf"))
	b.Setenv("CONTAINERS_CONF", filepath.Join(b.folder, "containers.conf"))
	b.Setenv("BUILDAH_ISOLATION", "chroot") // the only one that needs no container runtime
	b.Setenv("TMPDIR", filepath.Join(b.folder, "temporary"))
	// hack/images/push prefers Docker, which may be installed.
	programs := filepath.Join(b.folder, "programs")
	b.check(os.WriteFile(filepath.Join(programs, "docker"), []byte("#!/bin/sh\nexit 1\n"), 0o755))
	b.check(os.Symlink(b.buildah, filepath.Join(programs, "buildah")))
	b.Setenv("PATH", programs+":"+os.Getenv("PATH"))
}

// The folders of the caches in builds.
const (
	goCache   = "/go/cache"
	goModules = "/go/modules"
)

// run runs a program in namespaces of its own. When it ends, or the test is killed, the kernel kills all
// that it has started, and unmounts what they have mounted.
func (b *builder) run(variables []string, program string, args ...string) {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), program, args...)
	cmd.Dir, cmd.Env = b.source, append(os.Environ(), append(variables, "SSL_CERT_FILE="+b.authority())...)
	cmd.Stdout, cmd.Stderr = b.Output(), b.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL,
	}
	if err := cmd.Run(); err != nil {
		b.Fatalf("%s %s: %v", filepath.Base(program), strings.Join(args, " "), err)
	}
}

func (b *builder) output(program string, args ...string) string {
	b.Helper()
	out, err := output(b.Context(), program, args...)
	b.check(err)
	return out
}

func (b *builder) check(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// clone gives builds the commit that is checked out, with a tag, so that a release can be made of it.
func (b *builder) clone(root, version string) {
	b.Helper()
	if changes := b.output("git", "-C", root, "status", "--porcelain"); changes != "" {
		b.Fatalf("the checkout differs from its commit, which is what is built: commit or remove\n%s", changes)
	}
	b.output("git", "clone", "--quiet", "--no-tags", root, b.source)
	b.output("git", "-C", b.source, "tag", version)
	b.output("go", "-C", b.source, "mod", "download")
}

// base makes an image of Debian under the name that the Dockerfile has for it, and returns it by digest.
func (b *builder) base(argument string, environment []string, options ...string) string {
	b.Helper()
	sources, archive := filepath.Join(b.folder, "sources.list"), filepath.Join(b.folder, argument+".tar")
	b.check(os.WriteFile(sources, []byte(debian.Sources), 0o644))
	for _, excluded := range []string{"doc", "locale", "man"} { // as Debian's own small images
		options = append(options, "--dpkgopt=path-exclude=/usr/share/"+excluded+"/*")
	}
	b.run(nil, "mmdebstrap", append(options, "--variant=minbase", debian.Suite, archive, sources)...)
	layer, err := tarball.LayerFromFile(archive, tarball.WithCompressionLevel(gzip.BestSpeed))
	b.check(err)
	image, err := mutate.AppendLayers(empty.Image, layer)
	b.check(err)
	config, err := image.ConfigFile()
	b.check(err)
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Config.Env = "linux", runtime.GOARCH, environment
	image, err = mutate.ConfigFile(image, config)
	b.check(err)
	tag := b.reference("library/" + b.argument(argument))
	b.check(remote.Write(tag, image, remote.WithContext(b.Context())))
	digest, err := image.Digest()
	b.check(err)
	return b.registry + "/" + tag.RepositoryStr() + "@" + digest.String()
}

// argument returns the default of one of the Dockerfile's arguments.
func (b *builder) argument(name string) string {
	b.Helper()
	text, err := os.ReadFile(filepath.Join(b.source, "hack/images/Dockerfile"))
	b.check(err)
	found := regexp.MustCompile(`(?m)^ARG ` + name + `=(\S+)$`).FindSubmatch(text)
	if found == nil {
		b.Fatalf("the Dockerfile has no argument %s with a default", name)
	}
	return string(found[1])
}

// reference returns an image of the registry, as the test reads and writes it.
func (b *builder) reference(repositoryAndTag string) name.Tag {
	b.Helper()
	tag, err := name.NewTag(b.plain + "/" + repositoryAndTag)
	b.check(err)
	return tag
}

// image returns one of the registry.
func (b *builder) image(repositoryAndTag, architecture string) v1.Image {
	b.Helper()
	platform := v1.Platform{OS: "linux", Architecture: architecture}
	image, err := remote.Image(b.reference(repositoryAndTag), remote.WithContext(b.Context()), remote.WithPlatform(platform))
	b.check(err)
	return image
}

// allOf returns the product's images in a folder of the registry.
func (b *builder) allOf(folder, tag, architecture string) map[string]v1.Image {
	b.Helper()
	all := map[string]v1.Image{}
	for _, i := range allImages() {
		all[i.name] = b.image(folder+"/"+i.name+":"+tag, architecture)
	}
	return all
}

// push builds the images and pushes them, as users do, and returns them.
func (b *builder) push(tag string, variables ...string) map[string]v1.Image {
	b.Helper()
	b.run(append(variables, "REGISTRY="+b.registry+"/built", "TAG="+tag, "PLATFORMS=linux/"+runtime.GOARCH), "hack/images/push")
	return b.allOf("built", tag, runtime.GOARCH)
}

// build builds and pushes one image with buildah alone, and returns it.
func (b *builder) build(repositoryAndTag string, args ...string) v1.Image {
	b.Helper()
	reference := b.registry + "/" + repositoryAndTag
	b.run(nil, b.buildah, append([]string{"build", "--layers", "--tag", reference}, args...)...)
	b.run(nil, b.buildah, "push", reference)
	return b.image(repositoryAndTag, runtime.GOARCH)
}

// removeAll removes the folder, unless something uses it: a removal would follow a mount.
func (b *builder) removeAll() {
	b.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	b.check(err)
	if strings.Contains(string(mounts), b.folder+"/") {
		b.Fatalf("there are mounts below %s:\n%s", b.folder, mounts)
	}
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	b.check(err)
	for _, file := range commands {
		line, err := os.ReadFile(file) // fails for a process that has just ended
		if err == nil && strings.Contains(string(line), b.folder+"/") {
			b.Fatalf("a process uses %s: %s", b.folder, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	b.check(os.RemoveAll(b.folder))
}
