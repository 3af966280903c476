package mountjobs

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Values of wellknown.LabelAppComponent on Jobs that are not counted as the one mount Job of a file system.
const (
	AppComponentSweepJob  = "sweep-job"
	AppComponentSurveyJob = "survey-job"
	AppComponentCloneJob  = "clone-job"
)

// Build returns the Job of a spec. An error means that the spec can never be a Job; a mount Job with a batch of
// Pack's always can.
func Build(spec Spec) (*batchv1.Job, error) {
	name := Name{Kind: spec.kind(), FileSystemID: spec.FileSystemID, Number: spec.Number}
	job, err := spec.build(name)
	if err != nil {
		return nil, fmt.Errorf("building Job %s: %w", name, err)
	}
	return job, nil
}

func (s Spec) build(name Name) (*batchv1.Job, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	switch name.Kind {
	case Sweep:
		return s.job(name, nil, s.sweepPod()), nil
	case Survey:
		s.Timeout = wellknown.SurveyTimeout
		return s.job(name, map[string]string{wellknown.AnnotationSurvey: s.Survey.Encode()}, s.surveyPod()), nil
	case Clone:
		if len(s.Operations) != 1 || !s.Operations[0].Copies() {
			return nil, fmt.Errorf("want one operation that copies a volume, not %d operations", len(s.Operations))
		}
		s.Timeout = wellknown.CloneTimeout
		return s.withOperations(name, s.operationsPod("clone"))
	default:
		return s.withOperations(name, s.mountPod())
	}
}

func (s Spec) withOperations(name Name, pod corev1.PodSpec) (*batchv1.Job, error) {
	ops, err := operations.Encode(s.Operations)
	if err != nil {
		return nil, err
	}
	// mountjob reads the pod's annotation, which is immutable once the Job is created. The Job's own
	// is for users and other programs.
	annotations := map[string]string{wellknown.AnnotationOperations: string(ops)}
	job := s.job(name, annotations, pod)
	maps.Copy(job.Labels, countLabels(nil, s.Operations))
	if first := firstClaim(s.Operations); first != "" {
		job.Annotations[wellknown.AnnotationFirstClaim] = first
	}
	return job, nil
}

// countLabels are the labels of a Job that count its operations, with more operations than it has.
func countLabels(labels map[string]string, more []operations.Operation) map[string]string {
	count := func(label string, kinds ...operations.Kind) string {
		n, _ := strconv.Atoi(labels[label]) // 0 without the label
		for _, o := range more {
			if slices.Contains(kinds, o.Kind) {
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

func firstClaim(ops []operations.Operation) string {
	if len(ops) == 0 || ops[0].Claim == "" {
		return ""
	}
	return ops[0].Namespace + "/" + ops[0].Claim
}

// AddBatch returns the changes of a mount Job's metadata that give its worker the next batch. used are the
// numbers of batches from which nothing more follows: they are removed, and so are the marks of volumes that
// no other batch has, which would fill the Job of a worker that serves for long. filledTrash is when one of
// them last moved a directory to the trash, or zero. The changes hold only for the Job as it was observed.
func AddBatch(job *batchv1.Job, batch operations.Batch, used []int, filledTrash time.Time) (map[string]any, error) {
	data, err := operations.EncodeBatch(batch)
	if err != nil {
		return nil, fmt.Errorf("giving Job %s another batch: %w", job.Name, err)
	}
	annotations := map[string]any{wellknown.AnnotationBatch(batch.Number): string(data)}
	for _, name := range unneeded(job, used) {
		annotations[name] = nil
	}
	if !filledTrash.IsZero() {
		annotations[wellknown.AnnotationFilledTrash] = filledTrash.UTC().Format(time.RFC3339)
	}
	return map[string]any{
		"resourceVersion": job.ResourceVersion, "annotations": annotations, "labels": countLabels(job.Labels, batch.Operations),
	}, nil
}

// maxOpenBytes is the size of a Job's annotations up to which its worker gets another batch. Kubernetes
// allows 256 KiB: 64 KiB for the batch, and 64 KiB for the marks of volumes that are used.
const maxOpenBytes = 128 << 10

// HasRoom says that a mount Job has room for another batch once those in used are removed from it.
func HasRoom(job *batchv1.Job, used []int) bool {
	size := 0
	for name, value := range job.Annotations {
		size += len(name) + len(value)
	}
	for _, name := range unneeded(job, used) {
		size -= len(name) + len(job.Annotations[name])
	}
	return size <= maxOpenBytes
}

// unneeded are the annotations of used batches, and the marks of volumes that only those have. Batches
// that cannot be read may be of any volume.
func unneeded(job *batchv1.Job, used []int) (names []string) {
	batches, err := Batches(job)
	volumes := sets.New[string]()
	for _, batch := range batches {
		if name := wellknown.AnnotationBatch(batch.Number); batch.Number > operations.FirstBatch && slices.Contains(used, batch.Number) {
			names = append(names, name)
			continue
		}
		for _, o := range batch.Operations {
			volumes.Insert(o.Volume)
		}
	}
	for name := range job.Annotations {
		if volume, ok := wellknown.ParseAnnotationUsed(name); ok && err == nil && !volumes.Has(volume) {
			names = append(names, name)
		}
	}
	return names
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
			Annotations: maps.Clone(annotations),
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
	components := map[Kind]string{
		Mount: wellknown.AppComponentMountJob, Sweep: AppComponentSweepJob, Survey: AppComponentSurveyJob,
		Clone: AppComponentCloneJob, Ledger: AppComponentLedgerJob,
	}
	return map[string]string{
		wellknown.LabelComponent:            wellknown.ComponentWorker,
		wellknown.LabelAppComponent:         components[kind],
		wellknown.LabelMountJobFileSystemID: fileSystemID,
	}
}

// arguments returns those that all commands of mountjob have.
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
