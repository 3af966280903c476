package objects

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// CreateJob does nothing if there is a Job of that name: another leader's, or one that the cache has not
// observed yet.
func CreateJob(ctx context.Context, client kubernetes.Interface, job *batchv1.Job) (created bool, err error) {
	_, err = client.BatchV1().Jobs(job.Namespace).Create(ctx, job, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("creating Job %s: %w", job.Name, err)
	}
	return true, nil
}

// EndJob makes the cluster end a Job so long after its start, as at its deadline. It returns false if the Job's
// deadline is no later.
func EndJob(ctx context.Context, client kubernetes.Interface, job *batchv1.Job, after time.Duration) (ended bool, err error) {
	deadline := int64(after / time.Second)
	if job.Spec.ActiveDeadlineSeconds != nil && *job.Spec.ActiveDeadlineSeconds <= deadline {
		return false, nil
	}
	err = Patch(ctx, client, job, map[string]any{"spec": map[string]any{"activeDeadlineSeconds": deadline}})
	return err == nil, err
}

// DeleteJob deletes a Job as it was observed, and its pods. That it is gone is no error.
func DeleteJob(ctx context.Context, client kubernetes.Interface, job *batchv1.Job, policy metav1.DeletionPropagation) error {
	options := OnlyThis(job)
	options.PropagationPolicy = &policy
	if err := client.BatchV1().Jobs(job.Namespace).Delete(ctx, job.Name, options); err != nil && !IsGone(err) {
		return fmt.Errorf("deleting Job %s: %w", job.Name, err)
	}
	return nil
}
