package manifests

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// readServer decodes an object of the NFS server or of its component; an unknown field is an error.
func readServer[T any](t *testing.T, kind string) T {
	t.Helper()
	var object T
	for _, text := range append(documents(t, filepath.Join(deploy, "nfs-server")), documents(t, filepath.Join(deploy, "components/nfs-server"))...) {
		var header metav1.PartialObjectMetadata
		if yaml.Unmarshal([]byte(text), &header) == nil && header.Kind == kind {
			if err := yaml.UnmarshalStrict([]byte(text), &object); err != nil {
				t.Fatal(err)
			}
			return object
		}
	}
	t.Fatalf("there is no %s", kind)
	return object
}

// TestServerHasNoMoreThanItUses: its pod is reached by every node.
func TestServerHasNoMoreThanItUses(t *testing.T) {
	pod := readServer[appsv1.StatefulSet](t, "StatefulSet").Spec.Template.Spec
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken || pod.HostNetwork {
		t.Errorf("got a token, or the host's network: %+v", pod)
	}
	s := pod.Containers[0].SecurityContext
	want := []corev1.Capability{"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID"}
	if !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || !slices.Equal(s.Capabilities.Add, want) || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation {
		t.Errorf("got %+v", s)
	}
}

// TestServerWithQuotasSaysWhetherTheyWork by an init container, whose message the manager reads.
func TestServerWithQuotasSaysWhetherTheyWork(t *testing.T) {
	var patch []struct {
		Path  string
		Value json.RawMessage
	}
	if err := yaml.Unmarshal(text(t, deploy, "components/nfs-server-quotas/server.yaml"), &patch); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(patch, func(p struct {
		Path  string
		Value json.RawMessage
	}) bool {
		return p.Path == "/spec/template/spec/initContainers"
	})
	var containers []corev1.Container
	if err := yaml.UnmarshalStrict(patch[i].Value, &containers); err != nil {
		t.Fatal(err)
	}
	server, c := readServer[appsv1.StatefulSet](t, "StatefulSet").Spec.Template.Spec.Containers[0], containers[0]
	if c.Name != wellknown.QuotasContainer || c.Image != server.Image || c.VolumeMounts[0].Name != server.VolumeMounts[0].Name || c.VolumeMounts[0].MountPath != server.VolumeMounts[0].MountPath {
		t.Errorf("got %+v", c)
	}
	if s := c.SecurityContext; !slices.Equal(s.Capabilities.Add, []corev1.Capability{"DAC_READ_SEARCH", "SYS_ADMIN"}) || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation {
		t.Errorf("got %+v", s)
	}
}

// TestServerThatIsNotReadyIsReached: one whose disk is full serves readers and deletions, and its probe says that it is full.
func TestServerThatIsNotReadyIsReached(t *testing.T) {
	set, service := readServer[appsv1.StatefulSet](t, "StatefulSet"), readServer[corev1.Service](t, "Service")
	server := set.Spec.Template.Spec.Containers[0]
	if probe := server.ReadinessProbe; probe.Exec == nil || !service.Spec.PublishNotReadyAddresses || server.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError {
		t.Errorf("got the probe %+v, published %t, and messages by %q", probe, service.Spec.PublishNotReadyAddresses, server.TerminationMessagePolicy)
	}
}

// TestMetricsOfTheServerCanBeRead from namespaces with the label that the component network-policy wants, too: they have the
// disk's free space.
func TestMetricsOfTheServerCanBeRead(t *testing.T) {
	policy := readServer[networkingv1.NetworkPolicy](t, "NetworkPolicy")
	if len(policy.Spec.Ingress) != 2 || len(policy.Spec.Ingress[0].From) != 0 || policy.Spec.Ingress[0].Ports[0].Port.IntValue() != wellknown.NFSPort {
		t.Fatalf("got %+v", policy.Spec.Ingress)
	}
	metrics, server := policy.Spec.Ingress[1], readServer[appsv1.StatefulSet](t, "StatefulSet").Spec.Template.Spec.Containers[0]
	if from := metrics.From[0].NamespaceSelector.MatchLabels; from["efs-stunnel.gnuthought.com/metrics"] != "true" || metrics.Ports[0].Port.IntValue() != int(server.Ports[1].ContainerPort) {
		t.Errorf("got %+v", metrics)
	}
}

// TestNamesOfTheServerAgree: what the certificate Job writes is what server, agents and manager read.
func TestNamesOfTheServerAgree(t *testing.T) {
	set, service := readServer[appsv1.StatefulSet](t, "StatefulSet"), readServer[corev1.Service](t, "Service")
	if !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(set.Spec.Template.Labels)) || service.Labels[wellknown.LabelServer] == "" || service.Spec.Ports[0].Port != wellknown.NFSPort {
		t.Errorf("got the Service %+v", service)
	}
	secrets := []string{wellknown.ServerAuthoritySecret, wellknown.ServerClientSecret, wellknown.ServerCertificateSecret(service.Name)}
	for _, volume := range set.Spec.Template.Spec.Volumes {
		if volume.Secret != nil && volume.Secret.SecretName != secrets[2] {
			t.Errorf("the server has the Secret %s, want %s", volume.Secret.SecretName, secrets[2])
		}
	}
	mount, volume := agentPatch(t)
	if volume.Secret.SecretName != secrets[1] || !*volume.Secret.Optional || mount.MountPath != wellknown.ClientCertificateDir || mount.Name != volume.Name {
		t.Errorf("the agents have %+v at %+v", volume, mount)
	}
	rules := readCertificateRole(t)
	if !slices.Equal(rules[0].ResourceNames, secrets) || !slices.Equal(rules[2].ResourceNames, []string{service.Name}) {
		t.Errorf("got the rules %+v, want %q", rules, secrets)
	}
	job, cron := readServer[batchv1.Job](t, "Job").Spec.Template.Spec, readServer[batchv1.CronJob](t, "CronJob").Spec.JobTemplate.Spec.Template.Spec
	for _, pod := range []corev1.PodSpec{job, cron} {
		if args := pod.Containers[0].Args; !slices.Equal(args, []string{"certificates", "--servers=" + service.Name}) {
			t.Errorf("got the arguments %q", args)
		}
	}
	if job.ServiceAccountName != cron.ServiceAccountName || job.Containers[0].Image != cron.Containers[0].Image {
		t.Error("Job and CronJob differ")
	}
}

// readCertificateRole returns the rules of the certificate Job.
func readCertificateRole(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	for _, document := range documents(t, filepath.Join(deploy, "components/nfs-server")) {
		var role rbacv1.Role
		if yaml.Unmarshal([]byte(document), &role) == nil && role.Kind == "Role" && role.Name == "efs-nfs-certificates" {
			return role.Rules
		}
	}
	t.Fatal("the certificate Job has no Role")
	return nil
}

// agentPatch returns what the component adds to the agents.
func agentPatch(t *testing.T) (mount corev1.VolumeMount, volume corev1.Volume) {
	t.Helper()
	var patch []struct {
		Path  string
		Value json.RawMessage
	}
	if err := yaml.Unmarshal(text(t, deploy, "components/nfs-server/agent.yaml"), &patch); err != nil || len(patch) != 3 {
		t.Fatalf("%d operations, %v", len(patch), err)
	}
	if err := errors.Join(json.Unmarshal(patch[1].Value, &mount), json.Unmarshal(patch[2].Value, &volume)); err != nil {
		t.Fatal(err)
	}
	return mount, volume
}
