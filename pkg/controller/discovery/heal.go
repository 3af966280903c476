package discovery

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/controller/kubeobjects"
	"gnuthought.com/efs-stunnel/pkg/controller/pairs"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// heal puts right what is wrong with a pair, as the apiserver has it now: by the caches, a claim
// that was bound a moment ago could look like one that is gone.
func (e executor) heal(ctx context.Context, w rootWork) error {
	live, name := w, volumes.RootName(w.pair.FileSystemID)
	var err error
	if live.pair.Volume, live.pair.Claim, err = pairs.Get(ctx, e.client, name, w.pair.Namespace, name); err != nil {
		return err
	}
	if live.mustFreeClaim() {
		if err := e.deleteJobs(ctx, live); err != nil {
			return err
		}
	}
	for _, step := range live.steps() {
		if err := e.take(ctx, live, step); err != nil {
			return fmt.Errorf("%s of file system %s: %w", step.Action, live.pair.FileSystemID, err)
		}
	}
	return nil
}

func (e executor) take(ctx context.Context, w rootWork, step volumes.Change) error {
	pair := w.pair
	if err := pairs.Apply(ctx, e.client, pair.Volume, pair.Claim, step); err != nil {
		return err
	}
	what := step.String()
	e.metrics.rootWrites.Inc()
	e.options.Log.Info("root volume mended", "fileSystem", pair.FileSystemID, "reason", what)
	if pair.Volume != nil && !w.left && step.Action != volumes.CreateClaim {
		e.tell.onVolume(pair.Volume, wellknown.EventRootVolumeRepaired, what)
	}
	return nil
}

// deleteJobs deletes Jobs with their pods, which hold the claim.
func (e executor) deleteJobs(ctx context.Context, w rootWork) error {
	for _, job := range w.jobs {
		if err := e.deleteJob(ctx, job); err != nil {
			return fmt.Errorf("deleting Job %s, which holds the root claim: %w", job.Name, err)
		}
	}
	return nil
}

func (e executor) deleteJob(ctx context.Context, job *batchv1.Job) error {
	options, background := kubeobjects.OnlyThis(job), metav1.DeletePropagationBackground
	options.PropagationPolicy = &background
	err := e.client.BatchV1().Jobs(job.Namespace).Delete(ctx, job.Name, options)
	if kubeobjects.IsGone(err) {
		return nil
	}
	if err == nil {
		e.options.Log.Info("finished job deleted", "job", job.Name, "reason", "its pod holds a root claim that is to go")
	}
	return err
}
