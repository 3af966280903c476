package manifests

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	buildv1 "github.com/openshift/api/build/v1"
	imagev1 "github.com/openshift/api/image/v1"
	securityv1 "github.com/openshift/api/security/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// openshift are the overlay's objects of kinds that OpenShift defines.
type openshift struct {
	constraints map[string]securityv1.SecurityContextConstraints
	builds      map[string]buildv1.BuildConfig
	streams     map[string]imagev1.ImageStream
}

// readOpenShift decodes them with OpenShift's own types; an unknown field or kind is an error.
func readOpenShift(t *testing.T) openshift {
	t.Helper()
	o := openshift{
		constraints: map[string]securityv1.SecurityContextConstraints{},
		builds:      map[string]buildv1.BuildConfig{},
		streams:     map[string]imagev1.ImageStream{},
	}
	for _, text := range documents(t, filepath.Join(deploy, "overlays/openshift")) {
		var header metav1.PartialObjectMetadata
		if err := yaml.Unmarshal([]byte(text), &header); err != nil || !strings.Contains(header.APIVersion, ".openshift.io/") {
			continue // a list of patches, or a kind of Kubernetes
		}
		var err error
		switch header.APIVersion + " " + header.Kind {
		case securityv1.GroupVersion.String() + " SecurityContextConstraints":
			o.constraints[header.Name], err = strict[securityv1.SecurityContextConstraints](text)
		case buildv1.GroupVersion.String() + " BuildConfig":
			o.builds[header.Name], err = strict[buildv1.BuildConfig](text)
		case imagev1.GroupVersion.String() + " ImageStream":
			o.streams[header.Name], err = strict[imagev1.ImageStream](text)
		default:
			t.Errorf("no type for %s %s", header.APIVersion, header.Kind)
		}
		if err != nil {
			t.Errorf("%s %s: %v", header.Kind, header.Name, err)
		}
	}
	return o
}

func strict[T any](text string) (object T, err error) {
	err = yaml.UnmarshalStrict([]byte(text), &object)
	return object, err
}

// TestOpenShiftBuildsEachImage: a build for each image, with its target of the Dockerfile and a stream for
// its result. The replacements of the overlay are for the tag only.
func TestOpenShiftBuildsEachImage(t *testing.T) {
	o := readOpenShift(t)
	dockerfile := string(text(t, "../../hack/images/Dockerfile"))
	for name, build := range o.builds {
		strategy := build.Spec.Strategy.DockerStrategy
		if build.Spec.Strategy.Type != buildv1.DockerBuildStrategyType || strategy == nil || build.Spec.Source.Binary == nil {
			t.Fatalf("build %s is not of a folder that is sent, with a Dockerfile: %+v", name, build.Spec)
		}
		if diff := cmp.Diff([]corev1.EnvVar{{Name: "TARGET", Value: name}}, strategy.BuildArgs); diff != "" {
			t.Errorf("arguments of build %s mismatch (-want +got):\n%s", name, diff)
		}
		if !strings.Contains(dockerfile, " AS "+name+"\n") {
			t.Errorf("the Dockerfile has no target %s", name)
		}
		to := build.Spec.Output.To
		stream, _, _ := strings.Cut(to.Name, ":")
		if _, ok := o.streams[stream]; !ok || to.Kind != "ImageStreamTag" || stream != name {
			t.Errorf("build %s writes to %s %s, want a tag of its own stream", name, to.Kind, to.Name)
		}
	}
	if len(o.builds) != 3 || len(o.streams) != 3 {
		t.Errorf("found %d builds and %d streams, want 3 of each", len(o.builds), len(o.streams))
	}
}

// TestOpenShiftAdmitsTheAgent: the pod is within its constraints, which allow no more than it has.
func TestOpenShiftAdmitsTheAgent(t *testing.T) {
	constraints, ok := readOpenShift(t).constraints["efs-stunnel-agent"]
	if !ok {
		t.Fatal("the overlay has no constraints for the agent")
	}
	pod := read[appsv1.DaemonSet](t, "DaemonSet", wellknown.NodeDaemonSet).Spec.Template.Spec
	if constraints.AllowHostNetwork != pod.HostNetwork || constraints.AllowHostPorts != pod.HostNetwork ||
		constraints.AllowPrivilegedContainer || constraints.AllowHostPID || constraints.AllowHostIPC ||
		len(constraints.AllowedCapabilities) > 0 || !constraints.ReadOnlyRootFilesystem {
		t.Errorf("the constraints %+v are not the pod's", constraints)
	}
	if user := constraints.RunAsUser; user.Type != securityv1.RunAsUserStrategyMustRunAs || *user.UID != *pod.SecurityContext.RunAsUser {
		t.Errorf("the user is %+v, that of the pod %d", user, *pod.SecurityContext.RunAsUser)
	}
	for _, volume := range pod.Volumes {
		if kind := volumeKind(volume); !slices.Contains(constraints.Volumes, kind) {
			t.Errorf("volume %s is of kind %q; allowed are %v", volume.Name, kind, constraints.Volumes)
		}
	}
}

func volumeKind(v corev1.Volume) securityv1.FSType {
	switch {
	case v.ConfigMap != nil:
		return securityv1.FSTypeConfigMap
	case v.EmptyDir != nil:
		return securityv1.FSTypeEmptyDir
	case v.DownwardAPI != nil:
		return securityv1.FSTypeDownwardAPI
	case v.Projected != nil:
		return securityv1.FSProjected
	}
	return "unknown"
}

// TestOpenShiftAdmitsMountJobs: with the capabilities and the user of a mount Job's pod, and claims.
func TestOpenShiftAdmitsMountJobs(t *testing.T) {
	constraints, ok := readOpenShift(t).constraints["efs-stunnel-worker"]
	if !ok {
		t.Fatal("the overlay has no constraints for mount Jobs")
	}
	if diff := cmp.Diff([]corev1.Capability{"CHOWN", "DAC_OVERRIDE", "FOWNER"}, constraints.AllowedCapabilities); diff != "" {
		t.Errorf("capabilities mismatch (-want +got):\n%s", diff)
	}
	if *constraints.RunAsUser.UID != 0 || constraints.AllowPrivilegedContainer || constraints.AllowHostNetwork || len(constraints.RequiredDropCapabilities) > 0 {
		t.Errorf("the constraints are %+v", constraints)
	}
	want := []securityv1.FSType{securityv1.FSTypeDownwardAPI, securityv1.FSTypePersistentVolumeClaim, securityv1.FSProjected}
	if diff := cmp.Diff(want, constraints.Volumes); diff != "" {
		t.Errorf("volumes mismatch (-want +got):\n%s", diff)
	}
}
