package mountjobs

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// What the image and mountjob must agree on.
const (
	// Program is where the image has mountjob.
	Program = "/usr/local/bin/mountjob"
	// ContainerName is that of the pod's only container; those that a service mesh adds are ignored.
	ContainerName = "mountjob"
	// OperationsFile is where the container finds the operations.
	OperationsFile = operationsFolder + "/" + operationsName
)

const (
	operationsFolder = "/run/mountjob"
	operationsName   = "operations.json"
	operationsVolume = "operations"
	tokenFolder      = "/run/efs-worker"
	tokenName        = "token"
	tokenVolume      = "leader-token"
	rootVolume       = "efs"

	// terminationGraceSeconds is enough for the one step that mountjob may be in, and its report.
	terminationGraceSeconds = 30
)

func (s Spec) mountPod() corev1.PodSpec {
	pod := s.operationsPod("run")
	container := &pod.Containers[0]
	if s.lingers() {
		container.Args = append(container.Args, "--leader="+s.Leader.Address, "--leader-key="+s.Leader.Key,
			"--leader-token="+tokenFolder+"/"+tokenName, "--linger="+s.Linger.String())
		container.VolumeMounts = append(container.VolumeMounts,
			corev1.VolumeMount{Name: tokenVolume, MountPath: tokenFolder, ReadOnly: true})
		pod.Volumes = append(pod.Volumes, leaderToken())
	}
	return pod
}

// operationsPod carries out the operations of its annotation. Claims wait for it. A clone has the rights of a
// mount Job: a copy has the owners and modes of its source.
func (s Spec) operationsPod(command string) corev1.PodSpec {
	arguments := append(s.arguments(command), "--operations="+OperationsFile)
	// CHOWN gives a directory to its owner, FOWNER sets its mode afterwards, and DAC_OVERRIDE
	// works on directories that have another owner.
	pod := s.pod(arguments, "CHOWN", "DAC_OVERRIDE", "FOWNER")
	pod.PriorityClassName = s.PriorityClassName
	pod.Volumes = append(pod.Volumes, operationsFromAnnotation())
	container := &pod.Containers[0]
	container.VolumeMounts = append(container.VolumeMounts,
		corev1.VolumeMount{Name: operationsVolume, MountPath: operationsFolder, ReadOnly: true})
	return pod
}

// leaderToken proves to the leader which pod asks it. The apiserver does not accept its audience.
func leaderToken() corev1.Volume {
	return corev1.Volume{
		Name: tokenVolume,
		VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{
				ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: wellknown.WorkerAudience, Path: tokenName},
			}},
		}},
	}
}

// sweepPod has fewer capabilities: it sets no owner. It has the default priority: no claim waits for a
// sweep, so it should not preempt other pods.
func (s Spec) sweepPod() corev1.PodSpec {
	return s.pod(s.arguments("sweep"), "DAC_OVERRIDE", "FOWNER")
}

// surveyPod only reads, so that its priority is that of a sweep's.
func (s Spec) surveyPod() corev1.PodSpec {
	arguments := s.arguments("survey")
	if after := s.Survey.After; after != "" {
		// kubelet would replace $(NAME) by a variable's value.
		arguments = append(arguments, "--after="+strings.ReplaceAll(after, "$", "$$"))
	}
	pod := s.pod(arguments, "DAC_OVERRIDE")
	pod.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	container := &pod.Containers[0]
	container.VolumeMounts[0].ReadOnly = true
	container.Resources.Limits[corev1.ResourceMemory] = resource.MustParse("64Mi")
	return pod
}

// pod is of the Pod Security level "baseline": no host namespace, host path, host port or
// unmasked path, no capability beyond those that containers have anyway, the runtime's seccomp
// profile. "restricted" is out of reach for one reason only, being root and with capabilities:
// directories are made for arbitrary owners. The namespace's level does not depend on it; the
// node agent's host network needs "privileged".
func (s Spec) pod(arguments []string, capabilities ...corev1.Capability) corev1.PodSpec {
	no, grace, deadline := false, int64(terminationGraceSeconds), seconds(s.timeout())
	pod := corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyNever,
		ActiveDeadlineSeconds:         &deadline,
		TerminationGracePeriodSeconds: &grace,
		ServiceAccountName:            wellknown.WorkerServiceAccount,
		AutomountServiceAccountToken:  &no,
		EnableServiceLinks:            &no,
		NodeSelector:                  s.nodeSelector(),
		Affinity:                      s.affinity(),
		Tolerations:                   s.tolerations(),
		SecurityContext: &corev1.PodSecurityContext{
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{s.container(arguments, capabilities)},
		Volumes: []corev1.Volume{{
			Name: rootVolume,
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
				ClaimName: wellknown.RootVolumePrefix + s.FileSystemID,
			}},
		}},
	}
	for _, secret := range s.ImagePullSecrets {
		pod.ImagePullSecrets = append(pod.ImagePullSecrets, corev1.LocalObjectReference{Name: secret})
	}
	return pod
}

func (s Spec) container(arguments []string, capabilities []corev1.Capability) corev1.Container {
	yes, no, root := true, false, int64(0)
	return corev1.Container{
		Name:            ContainerName,
		Image:           s.Image,
		ImagePullPolicy: s.ImagePullPolicy,
		Command:         []string{Program},
		Args:            arguments,
		Resources:       resources(),
		VolumeMounts:    []corev1.VolumeMount{{Name: rootVolume, MountPath: wellknown.MountJobMountPath}},
		// With the other policy, logs would be taken for a damaged report.
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		SecurityContext: &corev1.SecurityContext{
			RunAsUser:                &root,
			RunAsGroup:               &root,
			AllowPrivilegeEscalation: &no,
			ReadOnlyRootFilesystem:   &yes,
			Capabilities: &corev1.Capabilities{
				Drop: []corev1.Capability{"ALL"},
				Add:  capabilities,
			},
		},
	}
}

// resources are small enough for any node. Both limits are there because a quota can demand
// them.
func resources() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("10m"),
			corev1.ResourceMemory: resource.MustParse("32Mi"),
		},
		Limits: corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("1"),
			corev1.ResourceMemory: resource.MustParse("256Mi"),
		},
	}
}

func operationsFromAnnotation() corev1.Volume {
	return corev1.Volume{
		Name: operationsVolume,
		VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: []corev1.DownwardAPIVolumeFile{{
				Path: operationsName,
				FieldRef: &corev1.ObjectFieldSelector{
					APIVersion: "v1",
					FieldPath:  "metadata.annotations['" + wellknown.AnnotationOperations + "']",
				},
			}},
		}},
	}
}
