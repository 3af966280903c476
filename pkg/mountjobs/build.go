package mountjobs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// AppComponentSweepJob is the value of wellknown.LabelAppComponent on sweep Jobs. They are not
// counted as the one mount Job of a file system.
const AppComponentSweepJob = "sweep-job"

// Build returns the Job that carries out a batch. An error means that the spec can never be a Job; a
// batch of Pack's always can.
func Build(spec Spec) (*batchv1.Job, error) {
	name := Name{Kind: Mount, FileSystemID: spec.FileSystemID, Number: spec.Number}
	if err := spec.check(); err != nil {
		return nil, fmt.Errorf("building Job %s: %w", name, err)
	}
	ops, err := operations.Encode(spec.Operations)
	if err != nil {
		return nil, fmt.Errorf("building Job %s: %w", name, err)
	}
	// mountjob reads the pod's annotation, which is immutable once the Job is created. The Job's own
	// is for users and other programs.
	annotations := map[string]string{wellknown.AnnotationOperations: string(ops)}
	return spec.job(name, annotations, spec.mountPod()), nil
}

// BuildSweep returns the Job that empties the trash of a file system.
func BuildSweep(spec Spec) (*batchv1.Job, error) {
	name := Name{Kind: Sweep, FileSystemID: spec.FileSystemID, Number: spec.Number}
	if err := spec.check(); err != nil {
		return nil, fmt.Errorf("building Job %s: %w", name, err)
	}
	return spec.job(name, nil, spec.sweepPod()), nil
}

func (s Spec) job(name Name, annotations map[string]string, pod corev1.PodSpec) *batchv1.Job {
	one, none := int32(1), int32(0)
	ttl := int32(wellknown.MountJobTTL / time.Second)
	deadline := seconds(s.timeout() + wellknown.MountJobStartGrace)
	labels := Labels(name.Kind, s.FileSystemID)
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name.String(),
			Namespace:   s.Namespace,
			Labels:      labels,
			Annotations: annotations,
			Finalizers:  []string{wellknown.FinalizerOutcome},
		},
		Spec: batchv1.JobSpec{
			Parallelism: &one,
			Completions: &one,
			// A retry is the next Job, with all operations that wait by then, on another node.
			BackoffLimit: &none,
			// For pods that never start. It deletes the pod and its report, which the pod's own,
			// shorter deadline does not.
			ActiveDeadlineSeconds:   &deadline,
			TTLSecondsAfterFinished: &ttl,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(labels), Annotations: maps.Clone(annotations)},
				Spec:       pod,
			},
		},
	}
}

// Labels returns the labels of the Jobs of a file system, and of their pods.
func Labels(kind Kind, fileSystemID string) map[string]string {
	component := wellknown.AppComponentMountJob
	if kind == Sweep {
		component = AppComponentSweepJob
	}
	return map[string]string{
		wellknown.LabelComponent:            wellknown.ComponentWorker,
		wellknown.LabelAppComponent:         component,
		wellknown.LabelMountJobFileSystemID: fileSystemID,
	}
}

// arguments returns those of both commands of mountjob.
func (s Spec) arguments(command string) []string {
	timeout := s.timeout()
	arguments := []string{
		command,
		"--file-system-id=" + s.FileSystemID,
		"--directory=" + wellknown.MountJobMountPath,
		"--deadline=" + timeout.String(),
		"--deadline-margin=" + min(reportMargin, timeout/4).String(),
	}
	if len(s.Aliases) > 0 {
		aliases := slices.Sorted(slices.Values(s.Aliases))
		arguments = append(arguments, "--aliases="+strings.Join(aliases, ","))
	}
	return arguments
}

// reportMargin is how long before its pod's deadline mountjob stops, to write its report in time.
const reportMargin = 30 * time.Second

// seconds rounds up: Kubernetes refuses a deadline of 0.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
