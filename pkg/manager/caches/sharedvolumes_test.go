package caches_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
)

// apis plays the discovery API.
type apis struct {
	mu        sync.Mutex
	installed bool  // guarded by mu
	err       error // guarded by mu
}

func (a *apis) set(installed bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.installed, a.err = installed, err
}

func (a *apis) ServerResourcesForGroupVersion(string) (*metav1.APIResourceList, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return nil, a.err
	}
	if !a.installed {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, "")
	}
	return &metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: v1alpha1.SharedVolumeResource}}}, nil
}

// enqueued records the keys that a listener was called with.
type enqueued struct {
	mu  sync.Mutex
	all []string // guarded by mu
}

func (h *enqueued) add(namespaced string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, namespaced)
}

// take gives what is new, each once.
func (h *enqueued) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.Sort(h.all)
	all := slices.Compact(h.all)
	h.all = nil
	return all
}

// TestSharedVolumesComeAndGo with their API, while the manager runs.
func TestSharedVolumesComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		object, err := (&v1alpha1.SharedVolume{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "data", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}},
			Spec:       v1alpha1.SharedVolumeSpec{FileSystemID: "fs-1"},
		}).ToUnstructured()
		if err != nil {
			t.Fatal(err)
		}
		client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{v1alpha1.SharedVolumes(): "SharedVolumeList"}, object)
		api, calls := &apis{err: errors.New("no answer")}, &enqueued{}
		s := caches.NewSharedVolumes(api, client, 0, slog.New(slog.DiscardHandler))
		s.OnChange(calls.add)
		var running sync.WaitGroup
		ctx, end := context.WithCancel(t.Context())
		running.Go(func() { s.Run(ctx) })
		defer running.Wait()
		defer end()
		pass := func() {
			<-time.After(time.Minute)
			synctest.Wait()
		}
		wants := func(when string, wantKnown bool, wantNames, wantCalls []string) {
			t.Helper()
			pass()
			all, known := s.All()
			var names []string
			for _, o := range all {
				names = append(names, o.Namespace+"/"+o.Name)
			}
			if diff := cmp.Diff(wantNames, names); diff != "" || known != wantKnown {
				t.Errorf("%s: known is %v; objects mismatch (-want +got):\n%s", when, known, diff)
			}
			if diff := cmp.Diff(wantCalls, calls.take()); diff != "" {
				t.Errorf("%s: calls mismatch (-want +got):\n%s", when, diff)
			}
			got := s.Get("team/data")
			if (got != nil) != (wantNames != nil) || got != nil && (got.Spec.FileSystemID != "fs-1" || got.ManagedFields != nil) {
				t.Errorf("%s: got %+v", when, got)
			}
		}
		wants("no answer", false, nil, nil)
		api.set(false, nil)
		wants("it is not there", true, nil, []string{""})
		api.set(true, nil)
		wants("it is installed", true, []string{"team/data"}, []string{"", "team/data"})
		api.set(false, errors.New("no answer"))
		wants("no answer again", true, []string{"team/data"}, nil)
		api.set(false, nil)
		wants("it is removed", true, nil, []string{""})
		api.set(true, nil)
		wants("it is installed again", true, []string{"team/data"}, []string{"", "team/data"})
	})
}
