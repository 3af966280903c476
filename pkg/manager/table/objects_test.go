package table

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/queue"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// showing is a controller in whose table are fs-1 and the pinned nas-1.
func showing(t *testing.T) (*Controller, *fake.FakeDynamicClient) {
	t.Helper()
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		v1alpha1.FileSystems(): "FileSystemList", v1alpha1.Installations(): "InstallationList",
	})
	c := &Controller{options: Options{Namespace: namespace, Dynamic: client, Leader: "leader", Log: slog.New(slog.DiscardHandler), Events: record.NewFakeRecorder(100), Now: apiserverTime}}
	c.client = kubefake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
	c.queue = newQueue()
	for _, r := range []*reporter{&c.tableEvents, &c.rootEvents} {
		r.Events, r.Log, r.Now = c.options.Events, c.options.Log, c.options.Now
	}
	pinned := map[string]ports.Target{"nas-1": target(20491)}
	c.shown.Store(&plan{table: *tableOf(map[string]ports.Target{"fs-1": target(20490), "nas-1": target(20491)}), pinned: pinned})
	c.snapshot.Store(&targets.Snapshot{Known: true, FileSystems: map[string]volumes.Candidate{"fs-1": {}, "nas-1": {}}})
	return c, client
}

// apiserverTime is not the machine's time.
func apiserverTime() time.Time { return time.Now().Add(-time.Hour) }

func newQueue() *queue.Queue[string] {
	return queue.New(queue.Options{Name: "test", KeyName: "key", Log: slog.New(slog.DiscardHandler)}, func(context.Context, string) (time.Duration, error) { return 0, nil })
}

func syncAll(t *testing.T, c *Controller) {
	t.Helper()
	if again, err := c.syncObjects(t.Context(), ""); again != objectsInterval || err != nil {
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
		return ports.Event{Reason: wellknown.EventPortConflict, FileSystem: id, Message: "its port is taken"}
	}
	c.tableEvents.report(t.Context(), nil, slices.Concat(
		portNotices([]ports.Event{conflict("fs-1"), conflict("nas-1"), {Reason: wellknown.EventFileSystemFound, FileSystem: "nas-1"}}, nil),
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
	installation := get[v1alpha1.Installation](t, client, v1alpha1.Installations(), namespace).Status
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
	c.shown.Store(&plan{table: *tableOf(map[string]ports.Target{"fs-1": target(20490)})})
	c.snapshot.Store(&targets.Snapshot{Known: true})
	syncAll(t, c)
	if _, err := client.Resource(v1alpha1.FileSystems()).Get(t.Context(), "nas-1", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("got %v for nas-1", err)
	}
	c.snapshot.Store(&targets.Snapshot{}) // nothing is known
	c.shown.Store(&plan{})
	syncAll(t, c)
	fileSystemOf(t, client, "fs-1")
}

// TestInstallationsLeaveEachOthersObjectsAlone: two that have a file system in their tables, and one that has it no
// longer. What an installation that is gone has left becomes the other one's.
func TestInstallationsLeaveEachOthersObjectsAlone(t *testing.T) {
	c, client := showing(t)
	other := &Controller{options: c.options, client: c.client}
	other.options.Namespace, other.options.Leader = "other", "their leader"
	other.shown.Store(&plan{table: *tableOf(map[string]ports.Target{"fs-1": target(20495), "fs-9": target(20496)})})
	other.snapshot.Store(&targets.Snapshot{Known: true})
	syncAll(t, other)
	syncAll(t, c)
	syncAll(t, other)
	for id, want := range map[string]int{"fs-1": 20495, "fs-9": 20496, "nas-1": 20491} {
		if got := fileSystemOf(t, client, id).Port; got != want {
			t.Errorf("%s: got port %d, want %d", id, got, want)
		}
	}
	for name, want := range map[string]string{namespace: "leader", "other": "their leader"} {
		if got := get[v1alpha1.Installation](t, client, v1alpha1.Installations(), name).Status.Leader; got != want {
			t.Errorf("installation %s: got leader %q, want %q", name, got, want)
		}
	}
	other.shown.Store(&plan{table: *tableOf(map[string]ports.Target{"fs-1": target(20495)})})
	syncAll(t, other)
	fileSystemOf(t, client, "nas-1")
	if err := c.client.CoreV1().Namespaces().Delete(t.Context(), "other", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	client.ClearActions()
	for range 3 {
		syncAll(t, c)
	}
	if got := fileSystemOf(t, client, "fs-1").Port; got != 20490 {
		t.Errorf("got port %d of what is left over", got)
	}
	deletions := slices.DeleteFunc(client.Actions(), func(a clienttesting.Action) bool { return a.GetVerb() != "delete" })
	if len(deletions) != 1 {
		t.Errorf("%d deletions, want one: the second would be of our own", len(deletions))
	}
}

// TestObjectThatBecameAnotherInstallationsIsNotOverwritten between two reads.
func TestObjectThatBecameAnotherInstallationsIsNotOverwritten(t *testing.T) {
	c, client := showing(t)
	syncAll(t, c)
	object, err := client.Resource(v1alpha1.FileSystems()).Get(t.Context(), "fs-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	object.SetLabels(map[string]string{wellknown.LabelInstallation: "other"})
	if _, err := client.Resource(v1alpha1.FileSystems()).Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.shown.Store(&plan{table: *tableOf(map[string]ports.Target{"fs-1": target(20499)})})
	if _, err := c.syncObjects(t.Context(), ""); err == nil || fileSystemOf(t, client, "fs-1").Port != 20490 {
		t.Errorf("got %v", err)
	}
}

// TestTasksAreConditions of their file systems, and stay as another leader wrote them until a Job has ended.
func TestTasksAreConditions(t *testing.T) {
	c, client := showing(t)
	failed := status.Condition{Subject: status.Subject{Kind: status.FileSystem, Name: "fs-1"}, Reason: wellknown.EventSweepFailed, Message: "no"}
	c.TaskEnded("fs-1", status.Swept, []status.Condition{failed})
	c.options.ClockWrong = func() string { return "it is 40s ahead" }
	syncAll(t, c)
	next := &Controller{options: c.options, client: c.client, queue: newQueue()}
	next.shown.Store(c.shown.Load())
	next.snapshot.Store(c.snapshot.Load())
	syncAll(t, next)
	if got := falseOf(fileSystemOf(t, client, "fs-1").Conditions); !slices.Equal(got, []string{"Swept SweepFailed"}) {
		t.Errorf("got %q", got)
	}
	if got := falseOf(get[v1alpha1.Installation](t, client, v1alpha1.Installations(), namespace).Status.Conditions); !slices.Equal(got, []string{"ClockRight ClockWrong"}) {
		t.Errorf("got %q", got)
	}
	for _, c := range get[v1alpha1.Installation](t, client, v1alpha1.Installations(), namespace).Status.Conditions {
		if time.Since(c.LastTransitionTime.Time) < 30*time.Minute {
			t.Errorf("%s has the time of this machine", c.Type)
		}
	}
	next.TaskEnded("fs-1", status.Swept, nil)
	syncAll(t, next)
	if got := falseOf(fileSystemOf(t, client, "fs-1").Conditions); len(got) > 0 {
		t.Errorf("got %q after a sweep", got)
	}
}

// TestMissingDefinitionsAreSaidOnce: the manager works without, and tries again later.
func TestMissingDefinitionsAreSaidOnce(t *testing.T) {
	c, client := showing(t)
	notFound := error(apierrors.NewNotFound(v1alpha1.FileSystems().GroupResource(), ""))
	client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return notFound != nil, nil, notFound })
	for range 2 {
		if again, err := c.syncObjects(t.Context(), ""); again != objectsInterval || err != nil || !c.objects.missing {
			t.Errorf("got %v, %v", again, err)
		}
	}
	notFound = nil
	syncAll(t, c)
	fileSystemOf(t, client, "fs-1")
	notFound = errors.New("no apiserver")
	c.objects = objectsMemory{}
	if _, err := c.syncObjects(t.Context(), ""); err == nil {
		t.Error("got no error")
	}
}
