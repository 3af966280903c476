package images

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"gnuthought.com/efs-stunnel/hack/release/internal/archive"
)

var at = time.Unix(1_700_000_000, 0)

// write builds an image and writes it as a file.
func write(t *testing.T) string {
	t.Helper()
	layers := map[string][][]archive.File{}
	for _, architecture := range []string{"amd64", "arm64"} {
		layers[architecture] = [][]archive.File{
			{{Name: "etc/os-release", Data: []byte("Debian")}},
			{{Name: "usr/local/bin/program", Data: []byte(architecture), Executable: true}},
		}
	}
	index, err := Build(Recipe{
		Layers: layers, User: "65532:65532", Entrypoint: "/usr/local/bin/program", Labels: map[string]string{"a": "b"}, Time: at,
	}, []string{"amd64", "arm64"})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := Write(file, index, "v1.2.3", at); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestEqualContentGivesEqualFiles(t *testing.T) {
	first, err := os.ReadFile(write(t))
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(write(t))
	if err != nil {
		t.Fatal(err)
	}
	if string(first) != string(second) {
		t.Error("two builds differ")
	}
}

// TestPushedImageIsTheWrittenOne: what a node pulls has the digest that manifests name.
func TestPushedImageIsTheWrittenOne(t *testing.T) {
	server := httptest.NewServer(registry.New())
	defer server.Close()
	repository := strings.TrimPrefix(server.URL, "http://") + "/storage/program"
	pushed, err := Push(t.Context(), write(t), repository, "v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	reference, err := name.ParseReference(pushed)
	if err != nil {
		t.Fatal(err)
	}
	image, err := remote.Image(reference, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: "arm64"}))
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	want := v1.Config{User: "65532:65532", Entrypoint: []string{"/usr/local/bin/program"}, Labels: map[string]string{"a": "b"}}
	if diff := cmp.Diff(want, config.Config); diff != "" || config.Architecture != "arm64" || !config.Created.Equal(at) {
		t.Errorf("architecture %s, created %s, configuration mismatch (-want +got):\n%s", config.Architecture, config.Created, diff)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 2 {
		t.Errorf("%d layers, %v", len(layers), err)
	}
}
