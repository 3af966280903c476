package images

import (
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"archive/tar"
	"errors"
	"io"
)

func tree(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "sub", "file"), []byte("content"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("file", filepath.Join(root, "sub", "link")); err != nil {
		t.Fatal(err)
	}
	return root
}

func build(t *testing.T) v1.Image {
	t.Helper()
	image, err := Build(Recipe{
		Files:      []File{{Source: tree(t), Target: "/opt"}},
		Entrypoint: []string{"/opt/sub/file"}, User: "65532",
	})
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func TestBuildKeepsModesAndLinks(t *testing.T) {
	r := tar.NewReader(mutate.Extract(build(t)))
	got := make(map[string]string)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got[h.Name] = h.FileInfo().Mode().String() + " " + h.Linkname
	}
	want := map[string]string{
		"opt": "drwxr-xr-x ", "opt/sub": "drwxr-xr-x ", "opt/sub/file": "-rw-r----- ", "opt/sub/link": "Lrwxrwxrwx file",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("image content (-want +got):\n%s", diff)
	}
}

func TestEqualContentGivesEqualDigest(t *testing.T) {
	first, err := build(t).Digest()
	if err != nil {
		t.Fatal(err)
	}
	second, err := build(t).Digest()
	if err != nil {
		t.Fatal(err)
	}
	if first != second {
		t.Errorf("%s and %s", first, second)
	}
}

func TestPushedAndLoadedImageIsTheSame(t *testing.T) {
	server := httptest.NewServer(registry.New())
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "image.tar")
	tag, err := name.NewTag("example.org/team/tool:v1")
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(file, tag, build(t)); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	inCluster, err := Push(t.Context(), port, "team/tool:v1", loaded["team/tool:v1"])
	if err != nil {
		t.Fatal(err)
	}
	if inCluster != "registry.lab:5000/team/tool:v1" {
		t.Errorf("name for pods: %s", inCluster)
	}
	ref, err := name.ParseReference(u.Host+"/team/tool:v1", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := remote.Image(ref)
	if err != nil {
		t.Fatal(err)
	}
	config, err := pulled.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != "65532" || config.Architecture != "amd64" {
		t.Errorf("pulled configuration %+v", config)
	}
}

func TestInvalidNamesAndFilesAreRefused(t *testing.T) {
	for _, bad := range []string{"tool", "Tool:v1", "registry.lab:5000/tool:v1", ":v1"} {
		if _, err := Push(t.Context(), 1, bad, build(t)); err == nil || !strings.Contains(err.Error(), "REPOSITORY:TAG") {
			t.Errorf("name %q: %v", bad, err)
		}
	}
	for _, bad := range []string{"", "a", "a:b", ":/b"} {
		if _, err := ParseFile(bad); err == nil || !strings.Contains(err.Error(), "SOURCE:TARGET") {
			t.Errorf("file %q: %v", bad, err)
		}
	}
}
