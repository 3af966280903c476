//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// jobs returns the Jobs of a kind on a file system, ordered by their numbers.
func (f *fixture) jobs(ctx context.Context, kind mountjobs.Kind, fileSystem string) []batchv1.Job {
	f.Helper()
	found, err := f.Client.BatchV1().Jobs(f.Namespace).List(ctx, metav1.ListOptions{})
	f.check(err)
	jobs := slices.DeleteFunc(found.Items, func(job batchv1.Job) bool {
		name, err := mountjobs.Identify(&job)
		return err != nil || name.Kind != kind || name.FileSystemID != fileSystem
	})
	slices.SortFunc(jobs, func(a, b batchv1.Job) int { return strings.Compare(a.Name, b.Name) })
	return jobs
}

func (f *fixture) mountJobs() []batchv1.Job {
	f.Helper()
	return f.jobs(f.Context(), mountjobs.Mount, f.fileSystem)
}

func namesOf(jobs []batchv1.Job) []string {
	var names []string
	for _, job := range jobs {
		names = append(names, job.Name)
	}
	return names
}

func (f *fixture) operationsOf(job batchv1.Job) []operations.Operation {
	f.Helper()
	ops, err := mountjobs.Operations(&job, nil)
	f.check(err)
	return ops
}

// expectNoOperation expects no mount Job with an operation of a kind for a volume.
func (f *fixture) expectNoOperation(kind operations.Kind, volume string) {
	f.Helper()
	for _, job := range f.mountJobs() {
		if slices.ContainsFunc(f.operationsOf(job), func(o operations.Operation) bool { return o.Kind == kind && o.Volume == volume }) {
			f.Errorf("Job %s has a %s of %s\n%s", job.Name, kind, volume, f.Dump())
		}
	}
}

// podOf returns a Job's only pod.
func (f *fixture) podOf(ctx context.Context, job string) (*corev1.Pod, error) {
	pods, err := f.Client.CoreV1().Pods(f.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "batch.kubernetes.io/job-name=" + job})
	if err != nil {
		return nil, err
	}
	if len(pods.Items) != 1 {
		return nil, fmt.Errorf("Job %s has %d pods", job, len(pods.Items))
	}
	return &pods.Items[0], nil
}

func (f *fixture) deleteJob(job *batchv1.Job, propagation metav1.DeletionPropagation) {
	f.Helper()
	f.check(f.Client.BatchV1().Jobs(f.Namespace).Delete(f.Context(), job.Name, metav1.DeleteOptions{PropagationPolicy: &propagation}))
}

func (f *fixture) patchJob(job *batchv1.Job, patch string) {
	f.Helper()
	_, err := f.Client.BatchV1().Jobs(f.Namespace).Patch(f.Context(), job.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	f.check(err)
}
