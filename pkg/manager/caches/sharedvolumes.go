package caches

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
)

// SharedVolumes is the cache of objects whose definition may come and go while the manager runs.
// It asks the discovery API, which every user may, and needs no permission on definitions.
type SharedVolumes struct {
	api      apiLister
	client   dynamic.Interface
	interval time.Duration
	log      *slog.Logger

	known     atomic.Bool               // whether the API is installed
	installed atomic.Pointer[installed] // nil while it is not
	listeners []func(namespaced string) // of OnChange
}

type apiLister interface {
	ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error)
}

// installed is the cache of one installation of the API.
type installed struct {
	informer cache.SharedIndexInformer
	stop     func() // returns when the informer has stopped
}

// defaultInterval costs nothing, and is short for a person who installs something.
const defaultInterval = 15 * time.Second

// NewSharedVolumes makes the cache; it starts nothing. The pause is that between two checks whether the API is
// installed; 0 is the default.
func NewSharedVolumes(api apiLister, client dynamic.Interface, pause time.Duration, log *slog.Logger) *SharedVolumes {
	return &SharedVolumes{api: api, client: client, interval: cmp.Or(pause, defaultInterval), log: log}
}

// OnChange registers a function that is called with the namespace and name of every object that has changed, and
// with "" when the API was installed or removed. It must not block. It is to be registered before Run.
func (s *SharedVolumes) OnChange(f func(namespaced string)) { s.listeners = append(s.listeners, f) }

func (s *SharedVolumes) notify(namespaced string) {
	for _, f := range s.listeners {
		f(namespaced)
	}
}

// Run keeps the cache until the context ends.
func (s *SharedVolumes) Run(ctx context.Context) {
	defer s.remove()
	wait.UntilWithContext(ctx, s.check, s.interval)
}

// check starts and stops the informer. While the apiserver does not answer, everything stays as it is.
func (s *SharedVolumes) check(ctx context.Context) {
	there, err := s.isInstalled()
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		s.log.Warn("it is not known whether shared volumes are installed", "err", err)
		return
	}
	switch before := s.installed.Load(); {
	case there && before == nil:
		s.log.Info("shared volumes are installed, and served from now on")
		s.add(ctx)
	case !there && before != nil:
		s.log.Info("shared volumes are not installed any more")
		s.remove()
	}
	if first := !s.known.Swap(true); first {
		s.notify("")
	}
}

func (s *SharedVolumes) isInstalled() (bool, error) {
	resources, err := s.api.ServerResourcesForGroupVersion(v1alpha1.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("asking for %s: %w", v1alpha1.GroupVersion(), err)
	}
	return slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == v1alpha1.SharedVolumeResource }), nil
}

func (s *SharedVolumes) add(ctx context.Context) {
	informer, err := s.newInformer()
	if err != nil {
		s.log.Error("shared volumes cannot be watched", "err", err)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	s.installed.Store(&installed{informer: informer, stop: func() {
		cancel()
		running.Wait()
	}}) // before the first event: its listeners get the object
	running.Go(func() { informer.RunWithContext(ctx) })
	running.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			s.notify("")
		}
	})
}

func (s *SharedVolumes) newInformer() (cache.SharedIndexInformer, error) {
	informer := dynamicinformer.NewFilteredDynamicInformer(s.client, v1alpha1.SharedVolumes(), metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	return informer, errors.Join(
		informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
			if !apierrors.IsNotFound(err) { // otherwise the API was removed, which the next check finds
				cache.DefaultWatchErrorHandler(ctx, r, err)
			}
		}),
		informer.SetTransform(newTrimmer().trim),
		objects.OnChange(s.changed, informer),
	)
}

func (s *SharedVolumes) changed(before, after any) {
	if key, err := cache.MetaNamespaceKeyFunc(cmp.Or(after, before)); err == nil {
		s.notify(key)
	}
}

func (s *SharedVolumes) remove() {
	if before := s.installed.Swap(nil); before != nil {
		before.stop()
		s.notify("")
	}
}

// All returns the objects, in no order. They are known when the API is not installed, or all that
// it has were read.
func (s *SharedVolumes) All() (all []*v1alpha1.SharedVolume, known bool) {
	known = s.known.Load() // first: it becomes true once an API that is installed is watched
	current := s.installed.Load()
	if current == nil {
		return nil, known
	}
	for _, object := range current.informer.GetStore().List() {
		if shared := s.read(object); shared != nil {
			all = append(all, shared)
		}
	}
	return all, current.informer.HasSynced()
}

// Keys returns the namespaces and names of all objects, in no order.
func (s *SharedVolumes) Keys() []string {
	if current := s.installed.Load(); current != nil {
		return current.informer.GetStore().ListKeys()
	}
	return nil
}

// Has reports whether there is an object with a namespace and name. Unlike Get, it decodes none.
func (s *SharedVolumes) Has(namespaced string) bool { return s.get(namespaced) != nil }

// Get returns the object with a namespace and name, nil if there is none.
func (s *SharedVolumes) Get(namespaced string) *v1alpha1.SharedVolume {
	if object := s.get(namespaced); object != nil {
		return s.read(object)
	}
	return nil
}

func (s *SharedVolumes) get(namespaced string) (object any) {
	if current := s.installed.Load(); current != nil {
		object, _, _ = current.informer.GetStore().GetByKey(namespaced) // a store in memory has no errors
	}
	return object
}

// read returns nil for an object that the definition's schema should have refused.
func (s *SharedVolumes) read(object any) *v1alpha1.SharedVolume {
	shared, err := v1alpha1.FromUnstructured(as[*unstructured.Unstructured](object))
	if err != nil {
		s.log.Error("a shared volume cannot be read", "err", err)
		return nil
	}
	return shared
}
