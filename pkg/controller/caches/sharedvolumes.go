package caches

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"gnuthought.com/efs-stunnel/pkg/apis/v1alpha1"
)

// SharedVolumesOptions say how the cache works.
type SharedVolumesOptions struct {
	// Interval is the time between two questions whether the API is installed; 0 is the default.
	Interval time.Duration
	Log      *slog.Logger
}

// SharedVolumes is the cache of objects whose definition may come and go while the manager runs.
// It asks the discovery API, which everybody may, and needs no right on definitions.
type SharedVolumes struct {
	options SharedVolumesOptions
	api     apiLister
	client  dynamic.Interface

	mu        sync.Mutex
	known     bool                      // guarded by mu: whether the API is installed
	installed *installed                // guarded by mu; nil while the API is not
	listeners []func(namespaced string) // guarded by mu
}

// apiLister is the part of the discovery client that is needed.
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

// NewSharedVolumes makes the cache; it asks nothing yet.
func NewSharedVolumes(api apiLister, client dynamic.Interface, o SharedVolumesOptions) *SharedVolumes {
	if o.Interval == 0 {
		o.Interval = defaultInterval
	}
	return &SharedVolumes{options: o, api: api, client: client}
}

// OnChange has a function called with the namespace and name of every object that has changed,
// and with "" when the API has come or gone. It must not block.
func (s *SharedVolumes) OnChange(f func(namespaced string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, f)
}

func (s *SharedVolumes) tell(namespaced string) {
	s.mu.Lock()
	listeners := s.listeners
	s.mu.Unlock()
	for _, f := range listeners {
		f(namespaced)
	}
}

// Run keeps the cache until the context ends.
func (s *SharedVolumes) Run(ctx context.Context) {
	ticker := time.NewTicker(s.options.Interval)
	defer ticker.Stop()
	defer s.remove()
	for {
		s.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// look starts and stops the informer. While nobody answers, everything stays as it is.
func (s *SharedVolumes) look(ctx context.Context) {
	there, err := s.isInstalled()
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		s.options.Log.Warn("it is not known whether shared volumes are installed", "err", err)
		return
	}
	switch before := s.current(); {
	case there && before == nil:
		s.options.Log.Info("shared volumes are installed, and served from now on")
		s.add(ctx)
	case !there && before != nil:
		s.options.Log.Info("shared volumes are not installed any more")
		s.remove()
	}
	s.mu.Lock()
	first := !s.known
	s.known = true
	s.mu.Unlock()
	if first {
		s.tell("")
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
	for _, r := range resources.APIResources {
		if r.Name == v1alpha1.SharedVolumeResource {
			return true, nil
		}
	}
	return false, nil
}

func (s *SharedVolumes) current() *installed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.installed
}

func (s *SharedVolumes) add(ctx context.Context) {
	informer, err := s.newInformer()
	if err != nil {
		s.options.Log.Error("shared volumes cannot be watched", "err", err)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	s.mu.Lock()
	s.installed = &installed{informer: informer, stop: func() {
		cancel()
		running.Wait()
	}}
	s.mu.Unlock() // before the first event: who is called for it asks for the object
	running.Go(func() { informer.RunWithContext(ctx) })
	running.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			s.tell("")
		}
	})
}

func (s *SharedVolumes) newInformer() (cache.SharedIndexInformer, error) {
	informer := dynamicinformer.NewFilteredDynamicInformer(s.client, v1alpha1.SharedVolumes(), metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	err := informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if apierrors.IsNotFound(err) {
			return // the API was removed, which the next look finds
		}
		cache.DefaultWatchErrorHandler(ctx, r, err)
	})
	if err != nil {
		return nil, err
	}
	if err := informer.SetTransform(withoutManagedFields); err != nil {
		return nil, err
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    s.changed,
		UpdateFunc: func(_, after any) { s.changed(after) },
		DeleteFunc: s.changed,
	})
	return informer, err
}

func withoutManagedFields(object any) (any, error) {
	if o, ok := object.(*unstructured.Unstructured); ok {
		o.SetManagedFields(nil)
	}
	return object, nil
}

func (s *SharedVolumes) changed(object any) {
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
		s.tell(key)
	}
}

func (s *SharedVolumes) remove() {
	s.mu.Lock()
	before := s.installed
	s.installed = nil
	s.mu.Unlock()
	if before != nil {
		before.stop()
		s.tell("")
	}
}

// All are the objects, in no order. They are known when the API is not installed, or all that
// it has were read.
func (s *SharedVolumes) All() (all []*v1alpha1.SharedVolume, known bool) {
	s.mu.Lock()
	current, known := s.installed, s.known
	s.mu.Unlock()
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

// Keys are the namespaces and names of all objects, in no order.
func (s *SharedVolumes) Keys() []string {
	current := s.current()
	if current == nil {
		return nil
	}
	return current.informer.GetStore().ListKeys()
}

// Has says whether there is an object with a namespace and name. Unlike Get, it reads none.
func (s *SharedVolumes) Has(namespaced string) bool {
	current := s.current()
	if current == nil {
		return false
	}
	_, found, err := current.informer.GetStore().GetByKey(namespaced)
	return err == nil && found
}

// Get is the object with a namespace and name, nil if there is none.
func (s *SharedVolumes) Get(namespaced string) *v1alpha1.SharedVolume {
	current := s.current()
	if current == nil {
		return nil
	}
	object, found, err := current.informer.GetStore().GetByKey(namespaced)
	if err != nil || !found {
		return nil
	}
	return s.read(object)
}

// read is nil for what the definition's schema should have kept out.
func (s *SharedVolumes) read(object any) *v1alpha1.SharedVolume {
	shared, err := v1alpha1.FromUnstructured(as[*unstructured.Unstructured](object))
	if err != nil {
		s.options.Log.Error("a shared volume cannot be read", "err", err)
		return nil
	}
	return shared
}
