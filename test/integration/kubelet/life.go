package kubelet

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// What ends a pod from outside.
var (
	errDeleted  = errors.New("the pod is being deleted")
	errDeadline = errors.New("the pod is past its deadline")
)

// pollInterval is how often what a pod waits for is looked at.
const pollInterval = 100 * time.Millisecond

// life is one pod's, from its creation to its last status.
type life struct {
	*Kubelet
	pod  *corev1.Pod // as it was first seen
	node string      // "" before it has one
	fate Fate

	// exists ends with the pod object, or when nothing is played any more.
	exists context.Context
	end    context.CancelFunc
	// wanted ends with exists, and when the pod shall end.
	wanted    context.Context
	terminate context.CancelCauseFunc
	// deleted ends with exists, and when the pod is being deleted.
	deleted context.Context
	delete  context.CancelFunc
}

func newLife(ctx context.Context, k *Kubelet, pod *corev1.Pod, fate Fate) *life {
	l := &life{Kubelet: k, pod: pod, fate: fate}
	l.exists, l.end = context.WithCancel(ctx)
	l.wanted, l.terminate = context.WithCancelCause(l.exists)
	l.deleted, l.delete = context.WithCancel(l.exists)
	return l
}

// live tells the test of what must not happen; that the pod is gone is not among it.
func (l *life) live() {
	defer l.end()
	err := l.stages()
	if err != nil && l.exists.Err() == nil && !apierrors.IsNotFound(err) {
		l.options.Failed(fmt.Errorf("playing pod %s: %w", l.pod.Name, err))
	}
}

func (l *life) stages() error {
	if err := l.schedule(); err != nil {
		return err // a pod without a node has no kubelet: the apiserver deletes it
	}
	defer l.obeyDeadline()()
	if err := l.patchStatus(l.creating(waiting("ContainerCreating", ""))); err != nil {
		return err
	}
	box, err := l.prepare()
	if err == nil {
		err = l.pullImage()
	}
	if err == nil {
		err = l.pause(l.fate.Delay)
	}
	if l.wanted.Err() != nil {
		return l.endUnstarted()
	}
	if err != nil {
		return err
	}
	return l.runContainer(box)
}

// obeyDeadline has the pod end at its own deadline, which counts from its start on the node.
func (l *life) obeyDeadline() (stop func() bool) {
	seconds := l.pod.Spec.ActiveDeadlineSeconds
	if seconds == nil {
		return func() bool { return false }
	}
	return time.AfterFunc(time.Duration(*seconds)*time.Second, func() { l.terminate(errDeadline) }).Stop
}

// endUnstarted is for a pod whose container never started.
func (l *life) endUnstarted() error {
	if !errors.Is(context.Cause(l.wanted), errDeadline) {
		return l.remove()
	}
	status := l.creating(waiting("ContainerCreating", ""))
	status.Phase = corev1.PodFailed
	l.blameDeadline(&status)
	if err := l.patchStatus(status); err != nil {
		return err
	}
	return l.awaitDeletion()
}

// awaitDeletion is the last thing that a kubelet does for a pod.
func (l *life) awaitDeletion() error {
	<-l.deleted.Done()
	return l.remove()
}

// poll asks until it is told yes or an error.
func (l *life) poll(ctx context.Context, ask func() (bool, error)) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		if done, err := ask(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// pause ends early when the pod does.
func (l *life) pause(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-l.wanted.Done():
		return context.Cause(l.wanted)
	}
}

// troubled says whether a trouble of the fate's is there, and not over.
func (l *life) troubled(words string) bool {
	if words == "" {
		return false
	}
	select {
	case <-l.fate.Until:
		return false
	default:
		return true
	}
}

// pullImage is the trouble with the image, as long as there is any.
func (l *life) pullImage() error {
	if !l.troubled(l.fate.ImagePull) {
		return nil
	}
	image := l.pod.Spec.Containers[0].Image
	if err := l.event(corev1.EventTypeWarning, "Failed", fmt.Sprintf("Failed to pull image %q: %s", image, l.fate.ImagePull)); err != nil {
		return err
	}
	message := fmt.Sprintf("Back-off pulling image %q: ErrImagePull: %s", image, l.fate.ImagePull)
	if err := l.patchStatus(l.creating(waiting("ImagePullBackOff", message))); err != nil {
		return err
	}
	return l.poll(l.wanted, func() (bool, error) { return !l.troubled(l.fate.ImagePull), nil })
}
