package mountjobs

import (
	"errors"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// ErrNotOurs is the error for a Job that the manager did not create.
var ErrNotOurs = errors.New("the manager did not create it")

// ErrFormat is the error for a Job whose operations cannot be read: they are damaged, or written by
// another version of the manager.
var ErrFormat = errors.New("its operations cannot be read by this version of the manager")

// Identify parses the name of a Job. A Job is ours if its labels match its name and it has no owner.
func Identify(job *batchv1.Job) (Name, error) {
	name, ok := ParseName(job.Name)
	if !ok {
		return Name{}, fmt.Errorf("identifying Job %s: %w: its name is not of our form", job.Name, ErrNotOurs)
	}
	for key, want := range Labels(name.Kind, name.FileSystemID) {
		if got := job.Labels[key]; got != want {
			return Name{}, fmt.Errorf("identifying Job %s: %w: its label %s is %q, not %q", job.Name, ErrNotOurs, key, shorten(got, 64), want)
		}
	}
	if owner := metav1.GetControllerOfNoCopy(job); owner != nil {
		return Name{}, fmt.Errorf("identifying Job %s: %w: %s %s owns it", job.Name, ErrNotOurs, owner.Kind, shorten(owner.Name, 64))
	}
	return name, nil
}

// IsUnreleased reports whether the outcome of a Job was not used yet.
func IsUnreleased(job *batchv1.Job) bool {
	return slices.Contains(job.Finalizers, wellknown.FinalizerOutcome)
}

// belongsTo compares the owner, which the Job controller sets, and not labels, which any pod of the
// namespace may have.
func belongsTo(pod *corev1.Pod, job *batchv1.Job) bool {
	return pod.Namespace == job.Namespace && metav1.IsControlledBy(pod, job)
}
