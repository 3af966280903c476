package discovery

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/controller/kubeobjects"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// heal puts right what is wrong with a pair, as the apiserver has it now: by the caches, a claim
// that was bound a moment ago could look like one that is gone.
func (e executor) heal(ctx context.Context, w rootWork) error {
	live, err := e.lookAt(ctx, w)
	if err != nil {
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
		if step.Action == volumes.CreateRootVolume {
			// The next look makes the claim. A binder that sees that before the volume gives up
			// on it for 15 seconds, and its two watches are not in step.
			return nil
		}
	}
	return nil
}

// lookAt reads the volume first: a claim that it names then exists when the claim is read, if
// it ever did and was not deleted.
func (e executor) lookAt(ctx context.Context, w rootWork) (live rootWork, err error) {
	name := volumes.RootName(w.pair.FileSystemID)
	w.pair.Volume, err = e.client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		w.pair.Volume, err = nil, nil
	}
	if err != nil {
		return w, fmt.Errorf("reading volume %s: %w", name, err)
	}
	w.pair.Claim, err = e.client.CoreV1().PersistentVolumeClaims(w.pair.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		w.pair.Claim, err = nil, nil
	}
	if err != nil {
		return w, fmt.Errorf("reading claim %s/%s: %w", w.pair.Namespace, name, err)
	}
	return w, nil
}

func (e executor) take(ctx context.Context, w rootWork, step volumes.RootCorrection) error {
	pair := w.pair
	if err := e.write(ctx, pair, step); err != nil {
		return err
	}
	what := fmt.Sprintf("%s: %s", step.Action, step.Why)
	e.metrics.rootWrites.Inc()
	e.options.Log.Info("root volume mended", "fileSystem", pair.FileSystemID, "reason", what)
	if pair.Volume != nil && !w.left && step.Action != volumes.CreateRootClaim {
		e.tell.onVolume(pair.Volume, wellknown.EventRootVolumeRepaired, what)
	}
	return nil
}

func (e executor) write(ctx context.Context, pair volumes.RootPair, step volumes.RootCorrection) (err error) {
	pvs, claims := e.client.CoreV1().PersistentVolumes(), e.client.CoreV1().PersistentVolumeClaims(pair.Namespace)
	switch step.Action {
	case volumes.CreateRootVolume:
		_, err = pvs.Create(ctx, step.Volume, metav1.CreateOptions{})
	case volumes.UpdateRootVolume:
		err = kubeobjects.PatchVolume(ctx, e.client, pair.Volume, step.Volume)
	case volumes.DeleteRootVolume:
		err = pvs.Delete(ctx, pair.Volume.Name, kubeobjects.OnlyThis(pair.Volume))
	case volumes.CreateRootClaim:
		_, err = claims.Create(ctx, step.Claim, metav1.CreateOptions{})
	case volumes.DeleteRootClaim:
		err = claims.Delete(ctx, pair.Claim.Name, kubeobjects.OnlyThis(pair.Claim))
	}
	return err
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
