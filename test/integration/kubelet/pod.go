package kubelet

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const pollInterval = 100 * time.Millisecond

// pod is one pod from its creation to its last status.
type pod struct {
	*Kubelet
	object   *corev1.Pod // as it was first seen
	node     string      // "" before it is scheduled
	behavior Behavior

	// exists ends with the pod object, or with the simulation.
	exists context.Context
	end    context.CancelFunc
	// running ends with exists, and when the pod is deleted.
	running   context.Context
	terminate context.CancelFunc
}

func newPod(ctx context.Context, k *Kubelet, object *corev1.Pod, behavior Behavior) *pod {
	p := &pod{Kubelet: k, object: object, behavior: behavior}
	p.exists, p.end = context.WithCancel(ctx)
	p.running, p.terminate = context.WithCancel(p.exists)
	return p
}

// run fails the test with every error but that the pod was deleted.
func (p *pod) run() {
	defer p.end()
	err := p.runStages()
	if err != nil && p.exists.Err() == nil && !apierrors.IsNotFound(err) {
		p.options.Failed(fmt.Errorf("simulating pod %s: %w", p.object.Name, err))
	}
}

func (p *pod) runStages() error {
	if err := p.schedule(); err != nil {
		return err // the apiserver deletes a pod without a node
	}
	if err := p.awaitKubelet(); err != nil {
		return err
	}
	if err := p.patchStatus(p.creating(waiting("ContainerCreating", ""))); err != nil {
		return err
	}
	box, err := p.mountVolumes()
	if err == nil {
		err = p.wait(p.behavior.Delay)
	}
	if p.running.Err() != nil {
		return p.remove() // its container has never started
	}
	if err != nil {
		return err
	}
	return p.runContainer(box)
}

func (p *pod) awaitKubelet() error {
	if p.behavior.Seen == nil {
		return nil
	}
	select {
	case <-p.behavior.Seen:
		return nil
	case <-p.running.Done():
		return p.remove()
	}
}

// waitForDeletion is the last thing that a kubelet does for a pod.
func (p *pod) waitForDeletion() error {
	<-p.running.Done()
	return p.remove()
}

// poll calls check until it returns true or an error.
func (p *pod) poll(ctx context.Context, check func() (bool, error)) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		if done, err := check(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// wait ends early when the pod is deleted.
func (p *pod) wait(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-p.running.Done():
		return p.running.Err()
	}
}

func (p *pod) mountFails() bool {
	select {
	case <-p.behavior.Until:
		return false
	default:
		return p.behavior.FailedMount != ""
	}
}
