package table

import (
	"errors"
	"log/slog"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// showing is a controller in whose table are fs-1 and the pinned nas-1.
func showing(t *testing.T) (*Controller, *fake.FakeDynamicClient) {
	t.Helper()
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		v1alpha1.FileSystems(): "FileSystemList", v1alpha1.Installations(): "InstallationList",
	})
	c := &Controller{options: Options{Dynamic: client, Leader: "leader", Log: slog.New(slog.DiscardHandler), Events: record.NewFakeRecorder(100)}}
	for _, r := range []*reporter{&c.tableEvents, &c.rootEvents} {
		r.events, r.log = c.options.Events, c.options.Log
	}
	pinned := map[string]ports.Target{"nas-1": target(20491)}
	c.shown.Store(&shown{*tableOf(map[string]ports.Target{"fs-1": target(20490), "nas-1": target(20491)}), pinned})
	c.snapshot.Store(&targets.Snapshot{Known: true, FileSystems: map[string]volumes.Candidate{"fs-1": {}, "nas-1": {}}})
	return c, client
}

func syncAll(t *testing.T, c *Controller) {
	t.Helper()
	if again, err := c.syncObjects(t.Context(), ""); again != 0 || err != nil {
		t.Fatalf("got %v, %v", again, err)
	}
}

// falseOf lists the conditions of an object that are False, with their reasons.
func falseOf(conditions []metav1.Condition) (all []string) {
	for _, c := range conditions {
		if c.Status == metav1.ConditionFalse {
			all = append(all, c.Type+" "+c.Reason)
		}
	}
	return all
}

func get[T any](t *testing.T, client *fake.FakeDynamicClient, resource schema.GroupVersionResource, name string) *T {
	t.Helper()
	object, err := client.Resource(resource).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	typed, err := v1alpha1.Read[T](object)
	if err != nil {
		t.Fatal(err)
	}
	return typed
}

func fileSystemOf(t *testing.T, client *fake.FakeDynamicClient, id string) v1alpha1.FileSystemStatus {
	t.Helper()
	return get[v1alpha1.FileSystem](t, client, v1alpha1.FileSystems(), id).Status
}

// TestObjectsShowConditions: those of two pinned servers are two, and a server that is found hides no
// condition of another subject.
func TestObjectsShowConditions(t *testing.T) {
	c, client := showing(t)
	conflict := func(id string) ports.Event {
		return ports.Event{Kind: ports.Conflict, FileSystem: id, Message: "its port is taken"}
	}
	c.tableEvents.report(t.Context(), nil, slices.Concat(
		portNotices([]ports.Event{conflict("fs-1"), conflict("nas-1"), {Kind: ports.Found, FileSystem: "nas-1"}}, nil),
		pollConditions(inventory{failure: errBoom})))
	c.rootEvents.report(t.Context(), nil, []notice{rootConflict("PersistentVolume x", "fs-1")})
	syncAll(t, c)
	if got := falseOf(fileSystemOf(t, client, "fs-1").Conditions); !slices.Equal(got, []string{"Usable PortConflict", "RootVolumeReady RootVolumeConflict"}) {
		t.Errorf("fs-1: got %q", got)
	}
	nas := fileSystemOf(t, client, "nas-1")
	if got := falseOf(nas.Conditions); !slices.Equal(got, []string{"Usable PortConflict"}) || nas.Source != v1alpha1.SourcePinned || nas.Port != 20491 {
		t.Errorf("nas-1: got %+v", nas)
	}
	installation := get[v1alpha1.Installation](t, client, v1alpha1.Installations(), v1alpha1.InstallationName).Status
	if got := falseOf(installation.Conditions); !slices.Equal(got, []string{"DiscoveryWorks DiscoveryFailed"}) || installation.Leader != "leader" {
		t.Errorf("installation: got %+v", installation)
	}
}

func TestUnusableFileSystemSaysWhy(t *testing.T) {
	c, client := showing(t)
	c.snapshot.Store(&targets.Snapshot{Known: true, FileSystems: map[string]volumes.Candidate{"fs-2": {Unusable: "it has no mount target"}}})
	syncAll(t, c)
	got := fileSystemOf(t, client, "fs-2")
	if c := got.Conditions[0]; c.Type != status.Usable || c.Reason != "FileSystemUnusable" || c.Message != "it has no mount target" {
		t.Errorf("got %+v", got)
	}
}

func TestObjectsAreWrittenOnChangeOnly(t *testing.T) {
	c, client := showing(t)
	syncAll(t, c)
	client.ClearActions()
	syncAll(t, c)
	if got := client.Actions(); len(got) > 0 {
		t.Errorf("got %v", got)
	}
	c.objects = objectsMemory{} // of another leader
	syncAll(t, c)
	for _, action := range client.Actions() {
		if action.GetVerb() != "list" {
			t.Errorf("the next leader writes %v", action)
		}
	}
}

func TestObjectOfAnotherFileSystemIsDeleted(t *testing.T) {
	c, client := showing(t)
	syncAll(t, c)
	c.shown.Store(&shown{*tableOf(map[string]ports.Target{"fs-1": target(20490)}), nil})
	c.snapshot.Store(&targets.Snapshot{Known: true})
	syncAll(t, c)
	if _, err := client.Resource(v1alpha1.FileSystems()).Get(t.Context(), "nas-1", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("got %v for nas-1", err)
	}
	c.snapshot.Store(&targets.Snapshot{}) // nothing is known
	c.shown.Store(&shown{})
	syncAll(t, c)
	fileSystemOf(t, client, "fs-1")
}

// TestMissingDefinitionsAreSaidOnce: the manager works without, and tries again later.
func TestMissingDefinitionsAreSaidOnce(t *testing.T) {
	c, client := showing(t)
	notFound := error(apierrors.NewNotFound(v1alpha1.FileSystems().GroupResource(), ""))
	client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return notFound != nil, nil, notFound })
	for range 2 {
		if again, err := c.syncObjects(t.Context(), ""); again != missingInterval || err != nil || !c.objects.missing {
			t.Errorf("got %v, %v", again, err)
		}
	}
	notFound = nil
	syncAll(t, c)
	fileSystemOf(t, client, "fs-1")
	notFound = errors.New("no apiserver")
	c.objects = objectsMemory{}
	if again, err := c.syncObjects(t.Context(), ""); again != 0 || err == nil {
		t.Errorf("got %v, %v", again, err)
	}
}
