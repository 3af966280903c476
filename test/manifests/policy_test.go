package manifests

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

const policyPage = "../../docs/reference/policy-engines.md"

// TestPageOfPoliciesNamesEachPrivilege holds the page to the pods of base and components and to the Jobs, so that
// administrators exempt what is needed and nothing else.
func TestPageOfPoliciesNamesEachPrivilege(t *testing.T) {
	want := map[string]bool{}
	for name, pod := range shippedPods(t) {
		for _, privilege := range privileges(pod) {
			want[name+" "+privilege] = true
		}
	}
	page, err := os.ReadFile(policyPage)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| [^|`]*`([a-z-]+)(?:…)?` \\| `([^`]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		got[row[1]+" "+row[2]] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("privileges mismatch (-manifests +page):\n%s", diff)
	}
}

// shippedPods returns the pods of the manifests by the names of their workloads, and of Jobs by the beginning of theirs.
func shippedPods(t *testing.T) map[string]corev1.PodSpec {
	t.Helper()
	pods := map[string]corev1.PodSpec{}
	for _, folder := range []string{"base", "components", "nfs-server"} {
		for _, text := range documents(t, deploy+"/"+folder) {
			var object struct {
				metav1.ObjectMeta `json:"metadata"`
				Kind              string
				Spec              struct{ Template corev1.PodTemplateSpec }
			}
			if err := yaml.Unmarshal([]byte(text), &object); err != nil {
				continue // a list of JSON patches
			}
			isWorkload := slices.Contains([]string{"Deployment", "DaemonSet", "StatefulSet", "Job"}, object.Kind)
			if object.Kind == "DaemonSet" && object.Name == "efs-stunnel" && folder == "base" {
				object.Spec.Template = withRealtime(t, text).Spec.Template
			}
			if isWorkload && len(object.Spec.Template.Spec.Containers) > 0 && object.Spec.Template.Spec.Containers[0].Image != "" {
				pods[object.Name] = object.Spec.Template.Spec
			}
		}
	}
	for kind, name := range map[mountjobs.Kind]string{
		mountjobs.Mount: wellknown.MountJobPrefix, mountjobs.Clone: wellknown.CloneJobPrefix,
		mountjobs.Sweep: wellknown.SweepJobPrefix, mountjobs.Survey: wellknown.SurveyJobPrefix,
	} {
		pods[name] = jobPod(t, kind)
	}
	if len(pods) < 9 {
		t.Fatalf("found only %d pods", len(pods))
	}
	return pods
}

// withRealtime returns the agents' DaemonSet with the component realtime, which patches it.
func withRealtime(t *testing.T, text string) (patched appsv1.DaemonSet) {
	t.Helper()
	patch, err := os.ReadFile(deploy + "/components/realtime/agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var documents [2][]byte
	for i, document := range []string{text, string(patch)} {
		if documents[i], err = yaml.YAMLToJSON([]byte(document)); err != nil {
			t.Fatal(err)
		}
	}
	merged, err := strategicpatch.StrategicMergePatch(documents[0], documents[1], patched)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(merged, &patched); err != nil {
		t.Fatal(err)
	}
	return patched
}

func jobPod(t *testing.T, kind mountjobs.Kind) corev1.PodSpec {
	t.Helper()
	spec := mountjobs.Spec{
		Settings: mountjobs.Settings{Namespace: wellknown.Namespace, Image: "image"}, Kind: kind, FileSystemID: "fs-1", Number: 1,
	}
	if kind == mountjobs.Clone {
		spec.Operations = []operations.Operation{{Kind: operations.Clone, Owner: operations.Owner{Cluster: "cluster"}}}
	}
	job, err := mountjobs.Build(spec)
	if err != nil {
		t.Fatal(err)
	}
	return job.Spec.Template.Spec
}

// privileges returns what a pod has that a policy may refuse.
func privileges(pod corev1.PodSpec) []string {
	var found []string
	for name, has := range map[string]bool{
		"hostNetwork": pod.HostNetwork, "hostPID": pod.HostPID, "hostIPC": pod.HostIPC, "tolerations: Exists": toleratesAll(pod),
	} {
		if has {
			found = append(found, name)
		}
	}
	if strings.HasPrefix(pod.PriorityClassName, "system-") {
		found = append(found, pod.PriorityClassName)
	}
	for _, volume := range pod.Volumes {
		if volume.HostPath != nil {
			found = append(found, "hostPath: "+volume.HostPath.Path)
		}
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		found = append(found, privilegesOf(c, pod.SecurityContext)...)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func toleratesAll(pod corev1.PodSpec) bool {
	return slices.ContainsFunc(pod.Tolerations, func(t corev1.Toleration) bool { return t.Key == "" && t.Operator == corev1.TolerationOpExists })
}

// privilegesOf also returns what the page says that no container has.
func privilegesOf(c corev1.Container, ofPod *corev1.PodSecurityContext) []string {
	var found []string
	own := c.SecurityContext
	user := own.RunAsUser
	if user == nil {
		user = ofPod.RunAsUser
	}
	for name, has := range map[string]bool{
		"runAsUser: 0":                    user == nil || *user == 0,
		"privileged":                      own.Privileged != nil && *own.Privileged,
		"allowPrivilegeEscalation":        own.AllowPrivilegeEscalation == nil || *own.AllowPrivilegeEscalation,
		"readOnlyRootFilesystem: false":   own.ReadOnlyRootFilesystem == nil || !*own.ReadOnlyRootFilesystem,
		"capabilities not dropped":        !slices.Equal(own.Capabilities.Drop, []corev1.Capability{"ALL"}),
		"another seccomp profile":         ofPod.SeccompProfile == nil || ofPod.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault,
		"no memory limit":                 c.Resources.Limits.Memory().IsZero(),
		fmt.Sprint("hostPort: ", c.Ports): slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.HostPort != 0 }),
	} {
		if has {
			found = append(found, name)
		}
	}
	for _, capability := range own.Capabilities.Add {
		found = append(found, string(capability))
	}
	return found
}
