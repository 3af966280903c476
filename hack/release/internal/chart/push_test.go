package chart

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
)

// push sends the chart to a registry on the loopback, and returns the registry's folder and the address of the chart.
func push(t *testing.T) (folder, address string) {
	t.Helper()
	server := httptest.NewServer(registry.New())
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "efs-stunnel-1.2.3.tgz")
	if err := os.WriteFile(file, archived(t), 0o644); err != nil {
		t.Fatal(err)
	}
	folder = strings.TrimPrefix(server.URL, "http://") + "/storage"
	address, err := Push(t.Context(), file, folder)
	if err != nil {
		t.Fatal(err)
	}
	return folder, address
}

// TestPushedChartIsOneForHelm: its types are those by which helm tells it from an image.
func TestPushedChartIsOneForHelm(t *testing.T) {
	folder, address := push(t)
	if want := "oci://" + folder + "/charts/efs-stunnel:1.2.3"; address != want {
		t.Errorf("got the address %s, want %s", address, want)
	}
	reference, err := name.ParseReference(strings.TrimPrefix(address, "oci://"))
	if err != nil {
		t.Fatal(err)
	}
	image, err := remote.Image(reference)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if manifest.Config.MediaType != configType || len(manifest.Layers) != 1 || manifest.Layers[0].MediaType != contentType {
		t.Fatalf("got %+v", manifest)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	content, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := loader.LoadArchive(content)
	if err != nil || loaded.Metadata.Version != "1.2.3" {
		t.Errorf("got %+v, %v", loaded, err)
	}
}
