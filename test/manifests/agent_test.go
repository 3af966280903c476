package manifests

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// tokenFolder is the folder of client-go's token.
const tokenFolder = "/var/run/secrets/kubernetes.io/serviceaccount"

// TestSupervisorHasNoIdentity: stunnel runs in its container and faces the network. test/integration
// shows that the apiserver adds none.
func TestSupervisorHasNoIdentity(t *testing.T) {
	agent := read[appsv1.DaemonSet](t, "DaemonSet", wellknown.NodeDaemonSet).Spec.Template
	if mounts := agent.Spec.AutomountServiceAccountToken; mounts == nil || *mounts {
		t.Error("the apiserver mounts a token into every container")
	}
	if agent.Annotations["eks.amazonaws.com/skip-containers"] != "supervisor" {
		t.Errorf("the pod's annotations are %v: on EKS the supervisor gets the credentials of a role", agent.Annotations)
	}
	tokens := map[string]bool{} // names of volumes
	for _, volume := range agent.Spec.Volumes {
		if volume.Projected != nil && slices.ContainsFunc(volume.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil }) {
			tokens[volume.Name] = true
		}
	}
	for _, c := range agent.Spec.Containers {
		i := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return tokens[m.Name] })
		switch {
		case i < 0 && c.Name == "agent":
			t.Error("the agent has no token")
		case i >= 0 && c.Name != "agent":
			t.Errorf("container %s has a token", c.Name)
		case i >= 0 && c.VolumeMounts[i].MountPath != tokenFolder:
			t.Errorf("container %s has its token in %s", c.Name, c.VolumeMounts[i].MountPath)
		}
	}
}

// TestRestartNeedsNoRegistry: a restarted container uses the image on the node, and every tag is of one
// version only.
func TestRestartNeedsNoRegistry(t *testing.T) {
	for _, c := range read[appsv1.DaemonSet](t, "DaemonSet", wellknown.NodeDaemonSet).Spec.Template.Spec.Containers {
		if c.ImagePullPolicy != corev1.PullIfNotPresent {
			t.Errorf("container %s has the pull policy %q", c.Name, c.ImagePullPolicy)
		}
	}
	for overlay, count := range map[string]int{"eks": 3, "openshift": 3, "standalone": 4} {
		var k struct {
			Images []struct{ Name, NewTag, Digest string }
		}
		if err := yaml.Unmarshal(text(t, deploy, "overlays", overlay, "kustomization.yaml"), &k); err != nil || len(k.Images) != count {
			t.Fatalf("overlay %s has %d images, %v", overlay, len(k.Images), err)
		}
		for _, image := range k.Images {
			if image.NewTag == "latest" || image.NewTag+image.Digest == "" {
				t.Errorf("overlay %s: image %s has the tag %q", overlay, image.Name, image.NewTag)
			}
		}
	}
}

func text(t *testing.T, path ...string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// TestAgentEndsAfterThePodsOfItsNode: node autoscalers do not evict it with them, and its grace period
// lasts while volumes are used.
func TestAgentEndsAfterThePodsOfItsNode(t *testing.T) {
	agent := read[appsv1.DaemonSet](t, "DaemonSet", wellknown.NodeDaemonSet).Spec.Template
	if agent.Annotations["cluster-autoscaler.kubernetes.io/enable-ds-eviction"] != "false" {
		t.Errorf("the pod's annotations are %v", agent.Annotations)
	}
	if grace := agent.Spec.TerminationGracePeriodSeconds; grace == nil || *grace != 300 {
		t.Errorf("the grace period is %v, want 300 s", grace)
	}
}

// TestSupervisorRequestsProcessorTime: without, the tunnels of a busy node stall.
func TestSupervisorRequestsProcessorTime(t *testing.T) {
	supervisor := container(t, read[appsv1.DaemonSet](t, "DaemonSet", wellknown.NodeDaemonSet), "supervisor")
	if request := supervisor.Resources.Requests.Cpu().MilliValue(); request < 250 {
		t.Errorf("the supervisor requests %dm, want 250m at least", request)
	}
	if _, limited := supervisor.Resources.Limits[corev1.ResourceCPU]; limited {
		t.Error("the supervisor's processor time is limited")
	}
}

// TestTunnelsFitIntoMemory: a tunnel has up to three small configuration files, each of a page, and a
// certificate. The table and the status need twice their size, because they are replaced by a new file.
func TestTunnelsFitIntoMemory(t *testing.T) {
	const page, certificatePages, others = 4 << 10, 2, 4 << 20
	const want = wellknown.DefaultPortCount*(3+certificatePages)*page + others
	for _, volume := range read[appsv1.DaemonSet](t, "DaemonSet", wellknown.NodeDaemonSet).Spec.Template.Spec.Volumes {
		folder := volume.EmptyDir
		if folder == nil {
			continue
		}
		if folder.Medium != corev1.StorageMediumMemory {
			t.Errorf("volume %s is on the node's disk, which may be full", volume.Name)
		}
		if limit := folder.SizeLimit.Value(); limit < want {
			t.Errorf("volume %s has %d bytes; %d tunnels need %d", volume.Name, limit, wellknown.DefaultPortCount, want)
		}
		return
	}
	t.Error("there is no folder")
}

// TestNodePodsHaveAUserOfTheirOwn: the same in images and constraints. Processes of one user may share a
// port, and other images have the manager's user, too.
func TestNodePodsHaveAUserOfTheirOwn(t *testing.T) {
	pod := read[appsv1.DaemonSet](t, "DaemonSet", wellknown.NodeDaemonSet).Spec.Template.Spec.SecurityContext
	if *pod.RunAsUser != *pod.RunAsGroup {
		t.Errorf("user %d, group %d", *pod.RunAsUser, *pod.RunAsGroup)
	}
	if manager := read[appsv1.Deployment](t, "Deployment", wellknown.ManagerDeployment).Spec.Template.Spec.SecurityContext; *manager.RunAsUser == *pod.RunAsUser {
		t.Errorf("the manager is user %d, too", *pod.RunAsUser)
	}
	for file, pattern := range map[string]string{
		"../../hack/images/Dockerfile":                        `(?s)AS efs-stunnel\n[^#]*USER %d:%[1]d\n`,
		"../../hack/images/lab":                               `(?m)^build efs-stunnel %d `,
		filepath.Join(deploy, "overlays/openshift/sccs.yaml"): `(?s)name: efs-stunnel-agent\n.*?runAsUser: \{type: MustRunAs, uid: %d\}`,
		"../../SECURITY.md":                                   `(?m)^\| agent \| uid %d,`,
	} {
		if !regexp.MustCompile(fmt.Sprintf(pattern, *pod.RunAsUser)).Match(text(t, file)) {
			t.Errorf("%s has another user than %d", file, *pod.RunAsUser)
		}
	}
}

// TestPodsRequireTheirConstraints: on OpenShift, constraints with a higher priority could apply.
func TestPodsRequireTheirConstraints(t *testing.T) {
	constraints := string(text(t, deploy, "overlays/openshift/sccs.yaml"))
	for _, file := range []string{"agent.yaml", "manager.yaml"} {
		var patch appsv1.DaemonSet // a Deployment has its pods in the same field
		if err := yaml.Unmarshal(text(t, deploy, "overlays/openshift", file), &patch); err != nil {
			t.Fatal(err)
		}
		required := patch.Spec.Template.Annotations["openshift.io/required-scc"]
		if required == "" || !strings.Contains(constraints, "resourceNames: ["+required+"]") {
			t.Errorf("%s requires %q, which no role may use", file, required)
		}
	}
}

// TestConstraintsOfTheOriginalLoseTheirUsers: those for workers have the same name, and an apply keeps
// fields that the manifest leaves out.
func TestConstraintsOfTheOriginalLoseTheirUsers(t *testing.T) {
	if !strings.Contains(string(text(t, deploy, "overlays/openshift/sccs.yaml")), "name: efs-stunnel-worker\npriority: 0\nusers: []\ngroups: []\n") {
		t.Error("priority, users and groups of efs-stunnel-worker would stay the original's")
	}
}
