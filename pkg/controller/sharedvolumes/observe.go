package sharedvolumes

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"gnuthought.com/efs-stunnel/pkg/apis/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/controller/caches"
	"gnuthought.com/efs-stunnel/pkg/controller/kubeobjects"
	"gnuthought.com/efs-stunnel/pkg/controller/targets"
)

// observer reads caches, and the apiserver itself before anything is written: by the caches, a
// claim that was bound a moment ago could look like one that is gone.
type observer struct {
	settings Settings
	objects  *caches.SharedVolumes
	caches   *caches.Caches
	targets  func() targets.Snapshot
	now      func() time.Time // by the apiserver's clock
	dynamic  dynamic.Interface
	live     kubeobjects.Reader
}

// observe looks through the caches.
func (o observer) observe(namespaced string) state {
	s := state{settings: o.settings, targets: o.targets(), now: o.now(), object: o.objects.Get(namespaced)}
	if s.object == nil {
		return s
	}
	s.volume = o.caches.Volume(volumeName(s.object))
	s.claim = o.caches.ClaimNamed(s.object.Namespace, claimName(s.object))
	return s
}

// lookAt is the same, as the apiserver has it now. The volume is read before the claim: a claim
// that it names then exists when the claim is read, if it ever did and was not deleted.
func (o observer) lookAt(ctx context.Context, s state) (state, error) {
	object, err := o.dynamic.Resource(v1alpha1.SharedVolumes()).Namespace(s.object.Namespace).Get(ctx, s.object.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		s.object = nil
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("reading SharedVolume %s: %w", nameOf(s.object), err)
	}
	if s.object, err = v1alpha1.FromUnstructured(object); err != nil {
		return s, err
	}
	if s.volume, err = o.live.Volume(ctx, volumeName(s.object)); err != nil {
		return s, err
	}
	s.claim, err = o.live.Claim(ctx, s.object.Namespace, claimName(s.object))
	return s, err
}
