package manifests

import (
	"os"
	"path"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestSecondServerIsAsThePageSays: its kustomizations are rendered as a reader writes them, beside the overlay.
func TestSecondServerIsAsThePageSays(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/tasks/nfs-server.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## A second server\n")
	blocks := strings.Split(section, "```yaml\n")
	if len(blocks) != 3 {
		t.Fatalf("the page has %d kustomizations, want that of the server and that of the overlay", len(blocks)-1)
	}
	own, _, _ := strings.Cut(blocks[1], "```")
	overlay, _, _ := strings.Cut(blocks[2], "```")
	var added kustomization
	if err := yaml.Unmarshal([]byte(overlay), &added); err != nil {
		t.Fatal(err)
	}
	s := read(t)
	if err := s.files.WriteFile(path.Join(root, "overlays/second/kustomization.yaml"), []byte(own)); err != nil {
		t.Fatal(err)
	}
	objects, err := s.render("standalone", func(k kustomization) {
		k.setImages(images())
		k["resources"] = append(k.list("resources"), "../second")
		k["patches"] = append(k.list("patches"), added.list("patches")...)
	})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, object := range objects.Resources() {
		found[object.GetKind()+" "+object.GetName()] = object.MustYaml()
	}
	for name, parts := range map[string][]string{
		"StatefulSet efs-nfs-server":     {"secretName: efs-nfs-server-tls\n", "efs-stunnel.gnuthought.com/server: nfs\n"},
		"StatefulSet efs-nfs-server-2":   {"secretName: efs-nfs-server-2-tls\n", "efs-stunnel.gnuthought.com/server: nfs-2\n", "serviceName: efs-nfs-server-2\n", "@sha256:"},
		"Service efs-nfs-server":         {"efs-stunnel.gnuthought.com/server: nfs\n"},
		"Service efs-nfs-server-2":       {"efs-stunnel.gnuthought.com/server: nfs-2\n"},
		"NetworkPolicy efs-nfs-server-2": {"efs-stunnel.gnuthought.com/server: nfs-2\n"},
		"Job efs-nfs-certificates":       {"- --servers=efs-nfs-server,efs-nfs-server-2\n"},
		"CronJob efs-nfs-certificates":   {"- --servers=efs-nfs-server,efs-nfs-server-2\n"},
		"Role efs-nfs-certificates":      {"- efs-nfs-server-2-tls\n", "- efs-nfs-server-2\n"},
	} {
		for _, part := range parts {
			if !strings.Contains(found[name], part) {
				t.Errorf("%s has no %q:\n%s", name, part, found[name])
			}
		}
	}
}
