// Package manifests compares manifests with programs, without a cluster. test/e2e shows that the apiserver
// accepts the manifests, and that every right that they grant is used.
package manifests

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

const deploy = "../../deploy/kustomize"

// documents are all manifests below a folder.
func documents(t *testing.T, folder string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		all = append(all, strings.Split(string(text), "\n---\n")...)
		return err
	})
	if err != nil || len(all) == 0 {
		t.Fatalf("%d manifests, %v", len(all), err)
	}
	return all
}

// read decodes an object of the base; an unknown field is an error.
func read[T any](t *testing.T, kind, name string) T {
	t.Helper()
	var object T
	for _, text := range documents(t, filepath.Join(deploy, "base")) {
		var header metav1.PartialObjectMetadata
		if err := yaml.Unmarshal([]byte(text), &header); err != nil {
			t.Fatal(err)
		}
		if header.Kind == kind && header.Name == name {
			if err := yaml.UnmarshalStrict([]byte(text), &object); err != nil {
				t.Fatal(err)
			}
			return object
		}
	}
	t.Fatalf("the base has no %s %s", kind, name)
	return object
}

func TestMountJobsFindTheAgent(t *testing.T) {
	agent := read[appsv1.DaemonSet](t, "DaemonSet", wellknown.NodeDaemonSet)
	if !labels.SelectorFromSet(mountjobs.AgentLabels()).Matches(labels.Set(agent.Spec.Template.Labels)) {
		t.Errorf("got the labels %v, want %v", agent.Spec.Template.Labels, mountjobs.AgentLabels())
	}
	if read[corev1.ServiceAccount](t, "ServiceAccount", wellknown.WorkerServiceAccount).Namespace != wellknown.Namespace {
		t.Error("the service account of mount Jobs is somewhere else")
	}
}

func TestAgentCanBeReplacedWithoutAGap(t *testing.T) {
	agent := read[appsv1.DaemonSet](t, "DaemonSet", wellknown.NodeDaemonSet)
	update := agent.Spec.UpdateStrategy.RollingUpdate
	if update == nil || update.MaxSurge.IntValue() != 1 || update.MaxUnavailable.IntValue() != 0 {
		t.Errorf("got %+v, want one pod more, never one less", update)
	}
	for _, c := range agent.Spec.Template.Spec.Containers {
		if len(c.Ports) > 0 {
			t.Errorf("container %s declares ports, so two pods cannot be on one node", c.Name)
		}
		for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
			if probe != nil && probe.Exec == nil {
				t.Errorf("container %s: another agent on the node could answer %+v", c.Name, probe)
			}
		}
	}
}

// TestProbesAreSmallAndQuick: each starts a program on every node, and must print why it failed before the
// kubelet kills it.
func TestProbesAreSmallAndQuick(t *testing.T) {
	agent := container(t, read[appsv1.DaemonSet](t, "DaemonSet", wellknown.NodeDaemonSet), wellknown.AgentContainer)
	for what, probe := range map[string]*corev1.Probe{"healthy": agent.LivenessProbe, "ready": agent.ReadinessProbe} {
		command := []string{"/usr/local/bin/nodeagent-supervise", "probe", what}
		if probe == nil || !slices.Equal(probe.Exec.Command, command) {
			t.Fatalf("got %+v, want %q", probe, command)
		}
	}
	if startup := agent.StartupProbe; startup == nil || !slices.Equal(startup.Exec.Command, agent.LivenessProbe.Exec.Command) {
		t.Fatalf("got %+v, want the same as later", startup)
	}
	for _, probe := range []*corev1.Probe{agent.StartupProbe, agent.LivenessProbe, agent.ReadinessProbe} {
		if left := time.Duration(probe.TimeoutSeconds)*time.Second - wellknown.DefaultAgentProbeTimeout; left < time.Second {
			t.Errorf("kubelet ends a probe %s after it would end by itself; want 1s at least", left)
		}
	}
}

func container(t *testing.T, set appsv1.DaemonSet, name string) corev1.Container {
	t.Helper()
	containers := set.Spec.Template.Spec.Containers
	i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("the DaemonSet has no container %s", name)
	}
	return containers[i]
}

// TestRootsAreInBothContainers: the agent names the file, and stunnel reads it in the other one.
func TestRootsAreInBothContainers(t *testing.T) {
	found := 0
	for _, text := range documents(t, deploy) {
		var set appsv1.DaemonSet
		if err := yaml.Unmarshal([]byte(text), &set); err != nil || set.Kind != "DaemonSet" {
			continue // not a DaemonSet
		}
		file := ""
		for _, c := range set.Spec.Template.Spec.Containers {
			for _, variable := range c.Env {
				if variable.Name == "EFS_CA_FILE" {
					file = variable.Value
				}
			}
		}
		if file == "" {
			continue
		}
		found++
		for _, name := range []string{"supervisor", "agent"} {
			mounts := container(t, set, name).VolumeMounts
			if !slices.ContainsFunc(mounts, func(m corev1.VolumeMount) bool { return strings.HasPrefix(file, m.MountPath+"/") }) {
				t.Errorf("%s is not mounted into container %s: %+v", file, name, mounts)
			}
		}
	}
	if found == 0 {
		t.Error("no manifest sets EFS_CA_FILE, as that of the lab should")
	}
}

func TestContainersAreRestricted(t *testing.T) {
	pods := []corev1.PodSpec{
		read[appsv1.Deployment](t, "Deployment", wellknown.ManagerDeployment).Spec.Template.Spec,
		read[appsv1.DaemonSet](t, "DaemonSet", wellknown.NodeDaemonSet).Spec.Template.Spec,
	}
	for _, pod := range pods {
		if s := pod.SecurityContext; s == nil || !*s.RunAsNonRoot || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("pod of %s: %+v", pod.ServiceAccountName, s)
		}
		for _, c := range pod.Containers {
			s := c.SecurityContext
			if s == nil || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || s.Capabilities.Add != nil {
				t.Errorf("container %s: %+v", c.Name, s)
			}
			if c.Resources.Requests.Memory().IsZero() {
				t.Errorf("container %s requests no memory", c.Name)
			}
			// The kernel kills every process of a container that exceeds its limit: for the
			// supervisor, all tunnels of the node.
			if limited := !c.Resources.Limits.Memory().IsZero(); limited == (c.Name == "supervisor") {
				t.Errorf("container %s has the limits %v", c.Name, c.Resources.Limits)
			}
		}
	}
}

// TestManagerHasItsMemoryLimit: Go collects garbage before the limit is reached, also with a patched one.
func TestManagerHasItsMemoryLimit(t *testing.T) {
	container := read[appsv1.Deployment](t, "Deployment", wellknown.ManagerDeployment).Spec.Template.Spec.Containers[0]
	for _, variable := range container.Env {
		if variable.Name == "MEMORY_LIMIT" && variable.ValueFrom != nil && variable.ValueFrom.ResourceFieldRef != nil &&
			variable.ValueFrom.ResourceFieldRef.Resource == "limits.memory" {
			return
		}
	}
	t.Errorf("container %s does not have its memory limit in the environment", container.Name)
}

// TestManagerHasMemoryForManyVolumes: the number in docs/reference/limits.md follows from the memory of one volume,
// which a test of package caches measures, and from the garbage beside it.
func TestManagerHasMemoryForManyVolumes(t *testing.T) {
	const volumes, each, beside = 50_000, 3600, 100 << 20
	container := read[appsv1.Deployment](t, "Deployment", wellknown.ManagerDeployment).Spec.Template.Spec.Containers[0]
	if limit := container.Resources.Limits.Memory().Value(); volumes*each/2*3+beside > limit/10*9 {
		t.Errorf("%d volumes do not fit into a limit of %d bytes", volumes, limit)
	}
}

// TestMountJobsHaveTheManagersPriority: pods of any priority wait for them. A patch of the manager's
// arguments replaces the base's.
func TestMountJobsHaveTheManagersPriority(t *testing.T) {
	base := read[appsv1.Deployment](t, "Deployment", wellknown.ManagerDeployment).Spec.Template.Spec
	want := "--worker-priority-class=" + base.PriorityClassName
	found := 0
	for _, text := range documents(t, deploy) {
		var manager appsv1.Deployment
		if err := yaml.Unmarshal([]byte(text), &manager); err != nil || manager.Kind != "Deployment" || manager.Name != wellknown.ManagerDeployment {
			continue
		}
		for _, c := range manager.Spec.Template.Spec.Containers {
			if c.Args == nil {
				continue
			}
			found++
			if !slices.Contains(c.Args, want) {
				t.Errorf("the arguments %q lack %s", c.Args, want)
			}
		}
	}
	if found < 2 {
		t.Errorf("found %d lists of arguments, want those of base and lab", found)
	}
}

// TestCriticalPodsHaveAQuota: some clusters admit them only in namespaces with one.
func TestCriticalPodsHaveAQuota(t *testing.T) {
	quota := read[corev1.ResourceQuota](t, "ResourceQuota", "efs-stunnel-critical-pods")
	if quota.Namespace != wellknown.Namespace || len(quota.Spec.Hard) != 1 || quota.Spec.Hard.Pods().Value() < 1_000_000 {
		t.Errorf("the quota in namespace %s is %v, want one that no pod exceeds", quota.Namespace, quota.Spec.Hard)
	}
	scope := quota.Spec.ScopeSelector.MatchExpressions[0]
	if scope.ScopeName != corev1.ResourceQuotaScopePriorityClass || scope.Operator != corev1.ScopeSelectorOpIn {
		t.Errorf("its scope is %+v", scope)
	}
	for _, class := range []string{
		read[appsv1.Deployment](t, "Deployment", wellknown.ManagerDeployment).Spec.Template.Spec.PriorityClassName,
		read[appsv1.DaemonSet](t, "DaemonSet", wellknown.NodeDaemonSet).Spec.Template.Spec.PriorityClassName,
	} {
		if !slices.Contains(scope.Values, class) {
			t.Errorf("it is for %q, and not for %s", scope.Values, class)
		}
	}
}

// TestManagerHasTimeToEnd: it drains its workers, writes its events and releases the Lease.
func TestManagerHasTimeToEnd(t *testing.T) {
	manager := read[appsv1.Deployment](t, "Deployment", wellknown.ManagerDeployment)
	if got := manager.Spec.Template.Spec.TerminationGracePeriodSeconds; got == nil || *got != 45 {
		t.Errorf("got %v seconds, want 45", got)
	}
}

func TestClassIsTheProvisioners(t *testing.T) {
	class := read[storagev1.StorageClass](t, "StorageClass", wellknown.StorageClass)
	if class.Provisioner != wellknown.DefaultProvisioner || class.Parameters["default_file_system_id"] != wellknown.DefaultFileSystemID {
		t.Errorf("got %+v", class)
	}
}

// TestRolesHaveNoWildcards: and no right to read Secrets but the named ones.
func TestRolesHaveNoWildcards(t *testing.T) {
	found := 0
	for _, text := range documents(t, deploy) {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(text), &role); err != nil || !strings.HasSuffix(role.Kind, "Role") {
			continue
		}
		found++
		for _, rule := range role.Rules {
			for _, names := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs} {
				if slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, "*") }) {
					t.Errorf("%s %s: %v", role.Kind, role.Name, rule)
				}
			}
			// The certificate Job reads those that it has written, by name.
			isNarrow := role.Kind == "Role" && (len(rule.ResourceNames) > 0 || slices.Equal(rule.Verbs, []string{"create"}))
			if slices.Contains(rule.Resources, "secrets") && !(role.Name == "efs-nfs-certificates" && isNarrow) {
				t.Errorf("%s %s may read Secrets, or create and read them", role.Kind, role.Name)
			}
		}
	}
	if found < 5 {
		t.Errorf("found only %d roles", found)
	}
}

// TestOverlaysUseTaggedFileSystems: the nodes could reach all others of the account, too.
func TestOverlaysUseTaggedFileSystems(t *testing.T) {
	for _, overlay := range []string{"eks", "openshift"} {
		if patch := string(text(t, deploy, "overlays", overlay, "file-systems.yaml")); !strings.Contains(patch, "value: --file-system-tags=efs-stunnel=true\n") {
			t.Errorf("overlay %s has the patch\n%s", overlay, patch)
		}
		if overlay := string(text(t, deploy, "overlays", overlay, "kustomization.yaml")); !strings.Contains(overlay, "  path: file-systems.yaml\n") {
			t.Errorf("it is not part of\n%s", overlay)
		}
	}
}
