package mountjobs

import (
	"errors"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// ErrNotOurs is that of a Job that no manager of this project made.
var ErrNotOurs = errors.New("it is none of ours")

// ErrFormat is that of a Job whose operations cannot be read: they are damaged, or written by
// another version of the manager.
var ErrFormat = errors.New("its operations cannot be read by this version of the manager")

// Identify says which Job this is. A Job is ours when name and labels agree and nobody owns it.
func Identify(job *batchv1.Job) (Name, error) {
	name, ok := ParseName(job.Name)
	if !ok {
		return Name{}, fmt.Errorf("looking at Job %s: %w: its name is not of our form", job.Name, ErrNotOurs)
	}
	for key, want := range Labels(name.Kind, name.FileSystemID) {
		if got := job.Labels[key]; got != want {
			return Name{}, fmt.Errorf("looking at Job %s: %w: its label %s is %q, not %q", job.Name, ErrNotOurs, key, shorten(got, 64), want)
		}
	}
	if owner := metav1.GetControllerOfNoCopy(job); owner != nil {
		return Name{}, fmt.Errorf("looking at Job %s: %w: %s %s owns it", job.Name, ErrNotOurs, owner.Kind, shorten(owner.Name, 64))
	}
	return name, nil
}

// Operations are those that a mount Job carries out. The error is ErrFormat.
func Operations(job *batchv1.Job) ([]operations.Operation, error) {
	ops, err := operationsOf(job)
	if err != nil {
		return nil, fmt.Errorf("reading Job %s: %w: %w", job.Name, ErrFormat, err)
	}
	return ops, nil
}

// operationsOf reads the pod's annotation, because that is what mountjob was given, and it
// cannot be changed. Where the Job's own is another, somebody wants something that was not done.
func operationsOf(job *batchv1.Job) ([]operations.Operation, error) {
	sent, ok := job.Spec.Template.Annotations[wellknown.AnnotationOperations]
	if !ok {
		return nil, fmt.Errorf("its pod has no annotation %s", wellknown.AnnotationOperations)
	}
	if job.Annotations[wellknown.AnnotationOperations] != sent {
		return nil, fmt.Errorf("its annotation %s is not the one of its pod", wellknown.AnnotationOperations)
	}
	return operations.Decode([]byte(sent))
}

// belongsTo is about the owner, which the apiserver's Job controller sets, never about labels,
// which any pod of the namespace may have.
func belongsTo(pod *corev1.Pod, job *batchv1.Job) bool {
	return pod.Namespace == job.Namespace && metav1.IsControlledBy(pod, job)
}
