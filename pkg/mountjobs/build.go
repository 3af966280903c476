// Package mountjobs builds a Kubernetes Job from the operations that wait for a file system, and reads the
// result of each operation from the Job and its pods.
//
//	waiting operations --Pack--> a batch --Build--> Job --mountjob--> pod --Read--> results
//	                                                     never starts --Diagnose--> what to do
//
// All functions depend on their arguments only: the caller passes time and objects, and does all writes.
// The program that the Job runs is cmd/mountjob.
package mountjobs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

type traits struct {
	component    string // the value of wellknown.LabelAppComponent
	command      string // of mountjob
	capabilities []corev1.Capability
	timeout      time.Duration // of the pod; 0 is the administrator's
	ttl          time.Duration
}

// CHOWN gives a directory to its owner, FOWNER sets its mode afterwards, and DAC_OVERRIDE works on directories that
// have another owner. A copy has the owners and modes of its source, a sweep and a removal for an administrator set no
// owner, and a survey only reads.
var capabilities = []corev1.Capability{"CHOWN", "DAC_OVERRIDE", "FOWNER"}

var kinds = map[Kind]traits{
	Mount:  {wellknown.AppComponentMountJob, "run", capabilities, 0, wellknown.MountJobTTL},
	Clone:  {"clone-job", "clone", capabilities, wellknown.CloneTimeout, wellknown.MountJobTTL},
	Sweep:  {"sweep-job", "sweep", capabilities[1:], 0, wellknown.MountJobTTL},
	Survey: {"survey-job", "survey", capabilities[1:2], wellknown.SurveyTimeout, wellknown.MountJobTTL},
	Ledger: {"ledger-job", "ledger", capabilities[1:], 0, time.Minute}, // the plugin deletes it, unless it is killed
}

// Build returns the Job of a spec. An error means that the spec can never be a Job; a mount Job with a batch of
// Pack's always can.
func Build(spec Spec) (*batchv1.Job, error) {
	spec.Kind = cmp.Or(spec.Kind, Mount)
	return spec.build(Name{Kind: spec.Kind, FileSystemID: spec.FileSystemID, Number: spec.Number}.String())
}

// BuildLedger returns the Job that answers a request about a file system. The suffix makes its name unique. The
// manager takes no part in such Jobs: ParseName does not know their names.
func BuildLedger(spec Spec, suffix string, request requests.Request) (*batchv1.Job, error) {
	spec.Kind, spec.Number, spec.request = Ledger, 1, request
	job, err := spec.build(string(Ledger) + spec.FileSystemID + "-" + suffix)
	if err == nil {
		job.Finalizers = nil
	}
	return job, err
}

func (s Spec) build(name string) (*batchv1.Job, error) {
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("building Job %s: %w", name, err)
	}
	if timeout := kinds[s.Kind].timeout; timeout > 0 {
		s.Timeout = timeout
	}
	pod, annotations := s.pod(), map[string]string{}
	var err error
	switch container := &pod.Containers[0]; s.Kind {
	case Mount, Clone:
		err = s.addOperations(&pod, annotations)
	case Survey:
		annotations[wellknown.AnnotationSurvey] = s.Survey.Encode()
		s.onlyRead(&pod)
	case Ledger:
		var text []byte
		text, err = s.request.Encode()
		container.Args = append(container.Args, "--request="+string(text))
	case Sweep:
	}
	if err != nil {
		return nil, fmt.Errorf("building Job %s: %w", name, err)
	}
	return s.job(name, annotations, pod), nil
}

// addOperations has a pod carry out the operations, which it reads from its annotation.
func (s Spec) addOperations(pod *corev1.PodSpec, annotations map[string]string) error {
	if s.Kind == Clone && (len(s.Operations) != 1 || !s.Operations[0].Copies()) {
		return fmt.Errorf("want one operation that copies a volume, not %d operations", len(s.Operations))
	}
	ops, err := operations.Encode(s.Operations)
	if err != nil {
		return err
	}
	annotations[wellknown.AnnotationOperations] = string(ops)
	pod.PriorityClassName = s.PriorityClassName // claims wait for it
	container := &pod.Containers[0]
	container.Args = append(container.Args, "--operations="+OperationsFile)
	mount(pod, operationsFolder, operationsFromAnnotation())
	if s.Kind == Mount && s.Linger > 0 && s.Leader.Address != "" {
		container.Args = append(container.Args, "--leader="+s.Leader.Address, "--leader-key="+s.Leader.Key,
			"--leader-token="+tokenFolder+"/"+tokenName, "--linger="+s.Linger.String())
		mount(pod, tokenFolder, leaderToken())
	}
	return nil
}

func mount(pod *corev1.PodSpec, path string, volume corev1.Volume) {
	pod.Volumes = append(pod.Volumes, volume)
	container := &pod.Containers[0]
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: volume.Name, MountPath: path, ReadOnly: true})
}

func (s Spec) onlyRead(pod *corev1.PodSpec) {
	container := &pod.Containers[0]
	if after := s.Survey.After; after != "" {
		// kubelet would replace $(NAME) by a variable's value.
		container.Args = append(container.Args, "--after="+strings.ReplaceAll(after, "$", "$$"))
	}
	pod.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	container.VolumeMounts[0].ReadOnly = true
	container.Resources.Limits[corev1.ResourceMemory] = resource.MustParse("64Mi")
}

// job has the annotations twice: the pod's, which mountjob reads, are immutable; the Job's are for users and others.
func (s Spec) job(name string, annotations map[string]string, pod corev1.PodSpec) *batchv1.Job {
	labels := Labels(s.Kind, s.FileSystemID)
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Namespace:   s.Namespace,
			Labels:      maps.Clone(labels),
			Annotations: maps.Clone(annotations),
			Finalizers:  []string{wellknown.FinalizerOutcome},
		},
		Spec: batchv1.JobSpec{
			Parallelism: new(int32(1)),
			Completions: new(int32(1)),
			// A retry is the next Job, with all operations that wait by then, on another node.
			BackoffLimit: new(int32(0)),
			// For pods that never start. It deletes the pod and its report, which the pod's own,
			// shorter deadline does not.
			ActiveDeadlineSeconds:   new(seconds(s.timeout() + wellknown.MountJobStartGrace)),
			TTLSecondsAfterFinished: new(int32(kinds[s.Kind].ttl / time.Second)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations},
				Spec:       pod,
			},
		},
	}
	if s.Kind.HasOperations() {
		maps.Copy(job.Labels, countLabels(nil, s.Operations))
		if first := s.Operations[:min(len(s.Operations), 1)]; len(first) > 0 && first[0].Claim != "" {
			job.Annotations[wellknown.AnnotationFirstClaim] = first[0].Namespace + "/" + first[0].Claim
		}
	}
	return job
}

// Labels returns the labels of the Jobs of a file system, and of their pods.
func Labels(kind Kind, fileSystemID string) map[string]string {
	return map[string]string{
		wellknown.LabelComponent:            wellknown.ComponentWorker,
		wellknown.LabelAppComponent:         kinds[kind].component,
		wellknown.LabelMountJobFileSystemID: fileSystemID,
	}
}

// countLabels are the labels of a Job that count its operations, with more operations than it has.
func countLabels(labels map[string]string, more []operations.Operation) map[string]string {
	count := func(label string, of ...operations.Kind) string {
		n, _ := strconv.Atoi(labels[label]) // 0 without the label
		for _, o := range more {
			if slices.Contains(of, o.Kind) {
				n++
			}
		}
		return strconv.Itoa(n)
	}
	return map[string]string{
		wellknown.LabelSetUp:     count(wellknown.LabelSetUp, operations.Setup, operations.Restore, operations.Clone),
		wellknown.LabelCleanedUp: count(wellknown.LabelCleanedUp, operations.Cleanup),
	}
}

// arguments returns those that all commands of mountjob have.
func (s Spec) arguments() []string {
	timeout := s.timeout()
	arguments := []string{
		kinds[s.Kind].command,
		"--file-system-id=" + s.FileSystemID,
		"--directory=" + wellknown.MountJobMountPath,
		"--deadline=" + timeout.String(),
		"--deadline-margin=" + min(reportMargin, timeout/4).String(),
	}
	if len(s.Aliases) > 0 {
		aliases := slices.Sorted(slices.Values(s.Aliases))
		arguments = append(arguments, "--aliases="+strings.Join(aliases, ","))
	}
	if s.Used {
		arguments = append(arguments, "--used")
	}
	return arguments
}

// reportMargin is how long before its pod's deadline mountjob stops, to write its report in time.
const reportMargin = 30 * time.Second

// seconds rounds up: Kubernetes refuses a deadline of 0.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

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

// pod is of the Pod Security level "baseline": no host namespace, host path, host port or
// unmasked path, no capability beyond those that containers have anyway, the runtime's seccomp
// profile. "restricted" is out of reach for one reason only, being root and with capabilities:
// directories are made for arbitrary owners. The namespace's level does not depend on it; the
// node agent's host network needs "privileged". It has the default priority, which no other pod is preempted for,
// unless claims wait for it.
func (s Spec) pod() corev1.PodSpec {
	pod := corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyNever,
		ActiveDeadlineSeconds:         new(seconds(s.timeout())),
		TerminationGracePeriodSeconds: new(int64(terminationGraceSeconds)),
		ServiceAccountName:            wellknown.WorkerServiceAccount,
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false),
		NodeSelector:                  s.nodeSelector(),
		Affinity:                      s.affinity(),
		Tolerations:                   s.tolerations(),
		SecurityContext: &corev1.PodSecurityContext{
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{s.container()},
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

func (s Spec) container() corev1.Container {
	return corev1.Container{
		Name:            ContainerName,
		Image:           s.Image,
		ImagePullPolicy: s.ImagePullPolicy,
		Command:         []string{Program},
		Args:            s.arguments(),
		Resources:       resources(),
		VolumeMounts:    []corev1.VolumeMount{{Name: rootVolume, MountPath: wellknown.MountJobMountPath}},
		// With the other policy, logs would be taken for a damaged report.
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		SecurityContext: &corev1.SecurityContext{
			RunAsUser:                new(int64(0)),
			RunAsGroup:               new(int64(0)),
			AllowPrivilegeEscalation: new(false),
			ReadOnlyRootFilesystem:   new(true),
			Capabilities: &corev1.Capabilities{
				Drop: []corev1.Capability{"ALL"},
				Add:  slices.Clone(kinds[s.Kind].capabilities),
			},
		},
	}
}

// resources are small enough for any node. A quota can demand both limits.
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
