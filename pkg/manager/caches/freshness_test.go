package caches

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/features"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
)

// TestListAgainstCache has a list at version 100 compared with caches.
//
//	listed | in the cache, at version | wanted
func TestListAgainstCache(t *testing.T) {
	type objects = map[string]string // version by name
	tests := map[string]struct {
		listed  objects
		cached  objects
		reached string // the version of the latest event in the cache
		behind  bool
		text    string // of state, while it is behind
	}{
		"equal":                                {objects{"a": "10", "b": "9"}, objects{"a": "10", "b": "9"}, "10", false, ""},
		"newer in the cache":                   {objects{"a": "10"}, objects{"a": "130"}, "130", false, ""},
		"created, and not there yet":           {objects{"a": "10", "b": "9"}, objects{"b": "9"}, "9", true, "1 of 2 objects are missing, 0 have been deleted"},
		"changed, and not there yet":           {objects{"a": "10"}, objects{"a": "8"}, "9", true, "1 of 1 objects are missing, 0 have been deleted"},
		"listed, then deleted":                 {objects{"a": "10", "b": "9"}, objects{"b": "9"}, "101", false, ""},
		"all listed, then deleted":             {objects{"a": "10", "b": "9"}, objects{}, "102", false, ""},
		"deleted, and still there":             {objects{"b": "9"}, objects{"a": "8", "b": "9"}, "9", true, "0 of 1 objects are missing, 1 have been deleted"},
		"all deleted, and still there":         {objects{}, objects{"a": "8"}, "8", true, "0 of 0 objects are missing, 1 have been deleted"},
		"created after the list":               {objects{"b": "9"}, objects{"a": "101", "b": "9"}, "101", false, ""},
		"created after the list, one to come":  {objects{"b": "9"}, objects{"a": "101", "c": "8"}, "101", true, "0 of 1 objects are missing, 1 have been deleted"},
		"made again under its name":            {objects{"a": "90"}, objects{"a": "10"}, "10", true, "1 of 1 objects are missing, 0 have been deleted"},
		"nothing there":                        {objects{}, objects{}, "", false, ""},
		"nothing in a cache without a version": {objects{"a": "10"}, objects{}, "", true, "1 of 1 objects are missing, 0 have been deleted"},
		"versions are numbers, not words":      {objects{"a": "99"}, objects{}, "100", false, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			listed := &listing{version: "100", objects: map[string]string{}}
			for name, version := range tt.listed {
				if err := listed.add(claimAt(name, version)); err != nil {
					t.Fatal(err)
				}
			}
			store := cache.NewStore(cache.MetaNamespaceKeyFunc)
			for name, version := range tt.cached {
				if err := store.Add(claimAt(name, version)); err != nil {
					t.Fatal(err)
				}
			}
			store.Bookmark(tt.reached)
			if behind, err := listed.isAhead(store); err != nil || behind != tt.behind {
				t.Errorf("behind %v, %v; want %v", behind, err, tt.behind)
			}
			missing, deleted, err := listed.differences(store)
			text := ""
			if missing+deleted > 0 {
				text = fmt.Sprintf("%d of %d objects are missing, %d have been deleted", missing, len(listed.objects), deleted)
			}
			if err != nil || text != tt.text {
				t.Errorf("got %q, %v; want %q", text, err, tt.text)
			}
		})
	}
}

func claimAt(name, version string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, ResourceVersion: version}}
}

// claimsAPI is the part of an apiserver that has claims. As etcd does, it counts the changes of
// all kinds.
type claimsAPI struct {
	mu       sync.Mutex
	version  int                                      // guarded by mu
	claims   map[string]*corev1.PersistentVolumeClaim // guarded by mu
	watchers []*watch.FakeWatcher                     // guarded by mu
	held     []watch.Event                            // guarded by mu: what watchers have not been sent
	holding  bool                                     // guarded by mu
	lists    int                                      // guarded by mu
	onList   func()                                   // called after each list of metadata was made
}

func newClaimsAPI(client *fake.Clientset, metadata *metadatafake.FakeMetadataClient, count int) *claimsAPI {
	a := &claimsAPI{claims: map[string]*corev1.PersistentVolumeClaim{}}
	for i := range count {
		a.version += 2
		name := "claim-" + strconv.Itoa(i)
		a.claims[name] = claimAt(name, strconv.Itoa(a.version))
	}
	client.PrependReactor("list", "persistentvolumeclaims", func(clienttesting.Action) (bool, apiruntime.Object, error) {
		return true, a.list(), nil
	})
	metadata.PrependReactor("list", "persistentvolumeclaims", func(clienttesting.Action) (bool, apiruntime.Object, error) {
		list := a.listMetadata()
		if a.onList != nil {
			a.onList()
		}
		return true, list, nil
	})
	client.PrependWatchReactor("persistentvolumeclaims", func(clienttesting.Action) (bool, watch.Interface, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		w := watch.NewFakeWithChanSize(1000, false)
		a.watchers = append(a.watchers, w)
		return true, w, nil
	})
	return a
}

func (a *claimsAPI) list() *corev1.PersistentVolumeClaimList {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++ // something of another kind has changed
	a.lists++
	list := &corev1.PersistentVolumeClaimList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(a.version)}}
	for _, claim := range a.claims {
		list.Items = append(list.Items, *claim.DeepCopy())
	}
	return list
}

func (a *claimsAPI) listMetadata() *metav1.List {
	whole := a.list()
	list := &metav1.List{ListMeta: whole.ListMeta}
	for _, claim := range whole.Items {
		list.Items = append(list.Items, apiruntime.RawExtension{Object: &metav1.PartialObjectMetadata{ObjectMeta: claim.ObjectMeta}})
	}
	return list
}

func (a *claimsAPI) listed() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lists
}

// deleteOne deletes any claim, and gives its name.
func (a *claimsAPI) deleteOne() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name := range a.claims {
		a.version++
		delete(a.claims, name)
		a.send(watch.Event{Type: watch.Deleted, Object: claimAt(name, strconv.Itoa(a.version))})
		return name
	}
	return ""
}

func (a *claimsAPI) create() {
	const name = "new"
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	a.claims[name] = claimAt(name, strconv.Itoa(a.version))
	a.send(watch.Event{Type: watch.Added, Object: a.claims[name].DeepCopy()})
}

// send is called with mu held.
func (a *claimsAPI) send(event watch.Event) {
	if a.holding {
		a.held = append(a.held, event)
		return
	}
	for _, w := range a.watchers {
		w.Action(event.Type, event.Object)
	}
}

// hold keeps events from the watchers, as a network does that has lost a connection.
func (a *claimsAPI) hold() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.holding = true
}

func (a *claimsAPI) release() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.holding = false
	for _, event := range a.held {
		a.send(event)
	}
	a.held = nil
}

// expire loses what is held: the watchers have to list again.
func (a *claimsAPI) expire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	expired := apierrors.NewResourceExpired("too old resource version").Status()
	for _, w := range a.watchers {
		w.Error(&expired)
	}
	a.holding, a.held, a.watchers = false, nil, nil
}

// goBack is an etcd that is restored from a backup, without an end of the watches.
func (a *claimsAPI) goBack() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version = 1
}

func newMetadataClient(t *testing.T) *metadatafake.FakeMetadataClient {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return metadatafake.NewSimpleMetadataClient(scheme)
}

// run gives caches that have synced with a cluster of so many claims, until the test ends.
func run(t *testing.T, claims int) (*Caches, *claimsAPI) {
	t.Helper()
	client, lists := fake.NewClientset(), newMetadataClient(t)
	api := newClaimsAPI(client, lists, claims)
	c, err := New(client, lists, "efs-stunnel")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	if err := c.Await(ctx); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return c, api
}

// TestCaughtUpWhileClaimsAreDeleted has each list answered when a claim that it names has been
// deleted, as it is where lists take seconds: one list is enough all the same.
func TestCaughtUpWhileClaimsAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, api := run(t, 500)
		before := api.listed()
		api.onList = func() {
			gone := cache.NewObjectName("team", api.deleteOne()).String()
			for _, exists, _ := c.Claims.GetStore().GetByKey(gone); exists; _, exists, _ = c.Claims.GetStore().GetByKey(gone) {
				runtime.Gosched() // until the event has come
			}
		}
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
		defer stop()
		if err := c.CaughtUp(ctx); err != nil {
			t.Error(err)
		}
		if lists := api.listed() - before; lists != 1 {
			t.Errorf("claims were listed %d times, want once", lists)
		}
	})
}

// TestCaughtUpAfterTheWatchWasCutOff has the cache miss creations and deletions.
func TestCaughtUpAfterTheWatchWasCutOff(t *testing.T) {
	for name, change := range map[string]func(*claimsAPI){
		"a claim was created": func(api *claimsAPI) { api.create() },
		"a claim was deleted": func(api *claimsAPI) { api.deleteOne() },
		"both": func(api *claimsAPI) {
			api.deleteOne()
			api.create()
		},
		"every claim was deleted": func(api *claimsAPI) {
			for range 3 {
				api.deleteOne()
			}
		},
	} {
		for way, restore := range map[string]func(*claimsAPI){"the events come": (*claimsAPI).release, "the watch has expired": (*claimsAPI).expire} {
			t.Run(name+", "+way, func(t *testing.T) { testCutOff(t, change, restore) })
		}
	}
}

func testCutOff(t *testing.T, change, restore func(*claimsAPI)) {
	synctest.Test(t, func(t *testing.T) {
		c, api := run(t, 3)
		api.hold()
		change(api)
		result := make(chan error, 1)
		go func() { result <- c.CaughtUp(t.Context()) }()
		<-time.After(time.Minute)
		synctest.Wait()
		select {
		case err := <-result:
			t.Fatalf("it has caught up with what it cannot know (%v)", err)
		default:
		}
		behind := c.Behind()
		if behind == nil || !strings.Contains(behind.Error(), "claims: ") || strings.Contains(behind.Error(), "volumes") {
			t.Errorf("it waits for %v, want claims only", behind)
		}
		restore(api)
		if err := <-result; err != nil {
			t.Error(err)
		}
		if want := len(api.claims); len(c.Claims.GetStore().ListKeys()) != want {
			t.Errorf("the cache has %q, want %d claims", c.Claims.GetStore().ListKeys(), want)
		}
		if behind := c.Behind(); behind != nil {
			t.Errorf("it still waits: %v", behind)
		}
	})
}

// TestCaughtUpNoticesThatVersionsGoBack, also where no object differs.
func TestCaughtUpNoticesThatVersionsGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, api := run(t, 3)
		api.goBack()
		if err := c.CaughtUp(t.Context()); !errors.Is(err, errBack) || !strings.Contains(err.Error(), "claims") {
			t.Errorf("got %v, want that the versions of claims have gone back", err)
		}
	})
}

// TestCaughtUpListsWhatDecisionsAreMadeFrom once, each.
func TestCaughtUpListsWhatDecisionsAreMadeFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := run(t, 3)
		client, ok := c.metadata.(*metadatafake.FakeMetadataClient)
		if !ok {
			t.Fatalf("%T", c.metadata)
		}
		client.ClearActions()
		if err := c.CaughtUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		lists := map[string]int{}
		for _, action := range client.Actions() {
			name := action.GetResource().Resource
			if list, ok := action.(clienttesting.ListAction); ok {
				name += " " + list.GetListRestrictions().Fields.String()
			}
			lists[name]++
		}
		for _, want := range []string{
			"persistentvolumeclaims ", "persistentvolumes ", "storageclasses ", "nodes ", "jobs ", "pods ",
			"configmaps metadata.name=efs-stunnel", "configmaps metadata.name=efs-stunnel-pinned",
		} {
			if lists[want] != 1 {
				t.Errorf("%q was listed %d times, want once", want, lists[want])
			}
			delete(lists, want)
		}
		if len(lists) > 0 {
			t.Errorf("also %v", lists)
		}
	})
}

// TestStoresKnowTheirVersion holds the library to what isAhead relies on. Without this feature, a
// store that reads a whole list anew has a version before it has all objects of that version.
func TestStoresKnowTheirVersion(t *testing.T) {
	if !features.FeatureGates().Enabled(features.AtomicFIFO) {
		t.Errorf("feature %s of client-go is off", features.AtomicFIFO)
	}
}

// TestBehindNamesCachesThatHaveNotSynced before they run.
func TestBehindNamesCachesThatHaveNotSynced(t *testing.T) {
	c, err := New(fake.NewClientset(), newMetadataClient(t), "efs-stunnel")
	if err != nil {
		t.Fatal(err)
	}
	behind := c.Behind()
	for _, want := range []string{"claims", "volumes", "nodes", "Jobs", "ConfigMap efs-stunnel-pinned"} {
		if behind == nil || !strings.Contains(behind.Error(), want+": not all objects have been read") {
			t.Errorf("%q is not in %v", want, behind)
		}
	}
}
