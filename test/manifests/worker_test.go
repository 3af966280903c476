package manifests

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// TestConstraintsOfWorkersAllowTheirVolumes: OpenShift refuses a pod with a volume of another kind.
func TestConstraintsOfWorkersAllowTheirVolumes(t *testing.T) {
	var constraints struct {
		Volumes []string `json:"volumes"`
	}
	for document := range strings.SplitSeq(string(text(t, deploy, "overlays/openshift/sccs.yaml")), "\n---\n") {
		if strings.Contains(document, "\n  name: efs-stunnel-worker\npriority:") {
			if err := yaml.Unmarshal([]byte(document), &constraints); err != nil {
				t.Fatal(err)
			}
		}
	}
	job, err := mountjobs.Build(mountjobs.Spec{
		Settings:     mountjobs.Settings{Namespace: wellknown.Namespace, Image: "image", Linger: time.Minute},
		FileSystemID: "fs-1", Number: 1, Leader: mountjobs.Leader{Address: "10.0.0.1:8443"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, volume := range job.Spec.Template.Spec.Volumes {
		switch {
		case volume.PersistentVolumeClaim != nil:
			kinds = append(kinds, "persistentVolumeClaim")
		case volume.DownwardAPI != nil:
			kinds = append(kinds, "downwardAPI")
		case volume.Projected != nil:
			kinds = append(kinds, "projected")
		default:
			t.Errorf("volume %s is of a kind that this test does not know", volume.Name)
		}
	}
	slices.Sort(kinds)
	if !slices.Equal(kinds, constraints.Volumes) {
		t.Errorf("%s allows volumes of the kinds %q, and mount Jobs have %q", filepath.Join(deploy, "overlays/openshift/sccs.yaml"), constraints.Volumes, kinds)
	}
}

// TestManagerIsReachedByWorkers: the port of its container is the default of its setting.
func TestManagerIsReachedByWorkers(t *testing.T) {
	manager := string(text(t, deploy, "base/manager.yaml"))
	for _, want := range []string{"containerPort: 8443", "fieldPath: status.podIP"} {
		if !strings.Contains(manager, want) {
			t.Errorf("base/manager.yaml lacks %s", want)
		}
	}
	if policies := string(text(t, deploy, "components/network-policy/policies.yaml")); wellknown.DefaultWorkerPort != 8443 || strings.Count(policies, "port: 8443") != 2 {
		t.Errorf("the default port is %d, and policies.yaml has not 8443 for both sides", wellknown.DefaultWorkerPort)
	}
}
