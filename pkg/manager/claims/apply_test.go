package claims

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/manager/observe"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

const uid = types.UID("22222222-0000-0000-0000-000000000000")

var (
	persistentVolumes = schema.GroupResource{Resource: "persistentvolumes"}
	errDenied         = apierrors.NewForbidden(persistentVolumes, volumes.VolumeName(uid), errors.New("policy team-a says no"))
	errChanged        = apierrors.NewConflict(persistentVolumes, volumes.VolumeName(uid), errors.New("it was changed"))
	errThere          = apierrors.NewAlreadyExists(persistentVolumes, volumes.VolumeName(uid))
	errUnreachable    = errors.New("dial tcp 127.0.0.1:443: connection refused")
)

// TestRejectedWritesAreReported on their objects, once; a stale cache and an apiserver that does not
// answer are not.
func TestRejectedWritesAreReported(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", UID: uid}}
	created := decide.CreateVolume{Attempt: decide.Attempt{Operation: setup(t), FileSystemID: "fs-1"}}
	unreadable := decide.CreateVolume{Attempt: decide.Attempt{Operation: operations.Operation{Record: []byte("{")}}}
	object, onItsWay := newVolume(t), newVolume(t)
	onItsWay.DeletionTimestamp = &metav1.Time{Time: time.Unix(0, 0)}
	for name, c := range map[string]struct {
		change decide.Change
		verb   string
		err    error
		reason string // "" for no event
	}{
		"creation denied":              {created, "create", errDenied, wellknown.EventProvisioningFailed},
		"creation comes too late":      {created, "create", errThere, ""},
		"creation not answered":        {created, "create", errUnreachable, ""},
		"live read denied":             {created, "get", errDenied, wellknown.EventProvisioningFailed},
		"record unreadable":            {unreadable, "create", errDenied, wellknown.EventProvisioningFailed},
		"deletion denied":              {decide.DeleteVolume{Object: object}, "delete", errDenied, wellknown.EventVolumeFailedDelete},
		"deletion of what was changed": {decide.DeleteVolume{Object: object}, "delete", errChanged, ""},
		"deletion not answered":        {decide.DeleteVolume{Object: object}, "delete", errUnreachable, ""},
		"deletion, the end denied":     {decide.DeleteVolume{Object: onItsWay}, "patch", errDenied, wellknown.EventVolumeFailedDelete},
		"adoption denied":              {decide.AdoptVolume{Object: object}, "patch", errDenied, wellknown.EventVolumeEntryFailed},
		"adoption of what was changed": {decide.AdoptVolume{Object: object}, "patch", errChanged, ""},
		"note of a gift denied":        {decide.Annotate{Object: object, Reason: wellknown.EventVolumeEntryFailed}, "patch", errDenied, wellknown.EventVolumeEntryFailed},
		"a new finalizer denied":       {decide.AddFinalizer{Object: object}, "patch", errDenied, wellknown.EventVolumeEntryFailed},
		"note without a reason denied": {decide.Annotate{Object: object}, "patch", errDenied, ""},
		"finalizer denied":             {decide.RemoveFinalizer{Object: object}, "patch", errDenied, wellknown.EventVolumeFailedDelete},
	} {
		t.Run(name, func(t *testing.T) {
			events := record.NewFakeRecorder(10)
			loop := newLoop(t, events, claim, c.verb, c.err)
			state := decide.State{UID: uid, Claim: claim, Targets: usable()}
			for range 2 {
				_ = loop.apply(t.Context(), state, planOf(c.change))
			}
			wantEvent(t, events, c.reason)
		})
	}
}

func planOf(change decide.Change) decide.Plan {
	return decide.Plan{Changes: []decide.Change{change}}
}

// TestRejectedVolumeOfADeletedClaim has no object to report on.
func TestRejectedVolumeOfADeletedClaim(t *testing.T) {
	events := record.NewFakeRecorder(10)
	loop := newLoop(t, events, nil, "create", errDenied)
	plan := planOf(decide.CreateVolume{Attempt: decide.Attempt{Operation: setup(t), FileSystemID: "fs-1"}})
	if err := loop.apply(t.Context(), decide.State{UID: uid, Targets: usable()}, plan); !apierrors.IsForbidden(err) {
		t.Errorf("error %v", err)
	}
	wantEvent(t, events, "")
}

// TestGrowthIsReported on the claim: that it was done, or that the apiserver refuses it, once however far
// the cache is behind.
func TestGrowthIsReported(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", UID: uid}}
	object := newVolume(t)
	growVolume := decide.ExpandVolume{Object: object, Claim: claim, Size: resource.MustParse("8Gi")}
	growClaim := decide.ExpandClaim{Claim: claim, Object: object, Size: growVolume.Size}
	for name, c := range map[string]struct {
		change decide.Change
		err    error
		want   string // what the event begins with, "" for none
	}{
		"volume grows":         {growVolume, nil, ""},
		"volume denied":        {growVolume, errDenied, "Warning VolumeResizeFailed changing volume pvc-"},
		"volume not answered":  {growVolume, errUnreachable, ""},
		"volume changed since": {growVolume, errChanged, ""},
		"claim grows":          {growClaim, nil, "Normal VolumeResizeSuccessful volume pvc-22222222-0000-0000-0000-000000000000 has 8Gi now"},
		"claim denied":         {growClaim, errDenied, "Warning VolumeResizeFailed changing claim shop/cart: "},
		"claim not answered":   {growClaim, errUnreachable, ""},
	} {
		t.Run(name, func(t *testing.T) {
			events := record.NewFakeRecorder(10)
			client := fake.NewClientset(claim, object)
			client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return c.err != nil, nil, c.err })
			loop := loopOf(t, events, client)
			for range 2 {
				_ = loop.apply(t.Context(), decide.State{UID: uid, Claim: claim, Targets: usable()}, planOf(c.change))
			}
			close(events.Events)
			var got []string
			for event := range events.Events {
				got = append(got, event)
			}
			if len(got) > 1 || strings.Join(got, "") == "" != (c.want == "") || !strings.HasPrefix(strings.Join(got, ""), c.want) {
				t.Errorf("reported %q, want %q", got, c.want)
			}
		})
	}
}

// TestVolumeOfASharedDirectoryIsReportedWithItsSharer on the claim that joins it.
func TestVolumeOfASharedDirectoryIsReportedWithItsSharer(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", UID: uid}}
	other := newVolume(t)
	other.Name, other.Spec.ClaimRef.Name = volumes.VolumeName("11111111-0000-0000-0000-000000000000"), "cart-0"
	events := record.NewFakeRecorder(10)
	loop := loopOf(t, events, fake.NewClientset(claim))
	addToCaches(t, loop, other)
	plan := planOf(decide.CreateVolume{Attempt: decide.Attempt{Job: "job", BatchSize: 1, Operation: setup(t), FileSystemID: "fs-1"}})
	if err := loop.apply(t.Context(), decide.State{UID: uid, Claim: claim, Targets: usable()}, plan); err != nil {
		t.Fatal(err)
	}
	if got := <-events.Events; !strings.Contains(got, "directory /shop/cart of file system fs-1, which claim cart-0 has, too") {
		t.Errorf("got %q", got)
	}
}

// TestVolumeIsNotMadeAgain of a claim that was deleted with it, however far the caches are behind.
func TestVolumeIsNotMadeAgain(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", UID: uid}}
	stale := decide.State{UID: uid, Claim: claim, Targets: usable()}
	for name, jobSize := range map[string]int{"small Job": 1, "large Job": objects.ManyObjects + 1} {
		plan := planOf(decide.CreateVolume{Attempt: decide.Attempt{Job: "job", BatchSize: jobSize, Operation: setup(t), FileSystemID: "fs-1"}})
		t.Run(name+", deleted between two reads", func(t *testing.T) {
			client := fake.NewClientset(claim, newVolume(t))
			reads := 0
			client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
				if action.Matches("get", action.GetResource().Resource) || action.Matches("list", action.GetResource().Resource) {
					if reads++; reads == 2 {
						deleteBoth(t, client)
					}
				}
				return false, nil, nil
			})
			loop := loopOf(t, record.NewFakeRecorder(10), client)
			wantNoVolume(t, loop, loop.apply(t.Context(), stale, plan))
		})
		t.Run(name+", deleted after it was made", func(t *testing.T) {
			client := fake.NewClientset(claim)
			loop := loopOf(t, record.NewFakeRecorder(10), client)
			if err := loop.apply(t.Context(), stale, plan); err != nil {
				t.Fatal(err)
			}
			deleteBoth(t, client)
			wantNoVolume(t, loop, loop.apply(t.Context(), stale, plan))
		})
	}
}

// TestAdoptionWritesOnlyWhatItChanges: the cache has less of a volume than the apiserver.
func TestAdoptionWritesOnlyWhatItChanges(t *testing.T) {
	stored := newVolume(t)
	delete(stored.Annotations, wellknown.AnnotationPath)
	cached := stored.DeepCopy()
	stored.Annotations["team"] = "a"
	client := fake.NewClientset(stored)
	loop := loopOf(t, record.NewFakeRecorder(10), client)
	if err := loop.adopt(t.Context(), cached); err != nil {
		t.Fatal(err)
	}
	got, err := client.CoreV1().PersistentVolumes().Get(t.Context(), stored.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Annotations["team"] != "a" || got.Annotations[wellknown.AnnotationPath] != stored.Spec.NFS.Path {
		t.Errorf("the adopted volume has the annotations %q", got.Annotations)
	}
}

func deleteBoth(t *testing.T, client *fake.Clientset) {
	t.Helper()
	version := corev1.SchemeGroupVersion
	if err := errors.Join(
		client.Tracker().Delete(version.WithResource("persistentvolumeclaims"), "shop", "cart"),
		client.Tracker().Delete(version.WithResource("persistentvolumes"), "", volumes.VolumeName(uid)),
	); err != nil {
		t.Fatal(err)
	}
}

func wantNoVolume(t *testing.T, loop *Controller, err error) {
	t.Helper()
	if !errors.Is(err, errBehind) {
		t.Errorf("got %v, want %v", err, errBehind)
	}
	left, listErr := loop.client.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
	if listErr != nil {
		t.Fatal(listErr)
	}
	if len(left.Items) > 0 {
		t.Error("the volume is there again")
	}
}

func usable() targets.Snapshot {
	return targets.Snapshot{FileSystems: map[string]volumes.Candidate{"fs-1": {ID: "fs-1", Port: 20490}}}
}

func wantEvent(t *testing.T, events *record.FakeRecorder, reason string) {
	t.Helper()
	if reason == "" {
		if len(events.Events) > 0 {
			t.Errorf("reported: %s", <-events.Events)
		}
		return
	}
	if len(events.Events) != 1 {
		t.Fatalf("%d events", len(events.Events))
	}
	if event := <-events.Events; !strings.HasPrefix(event, "Warning "+reason+" ") {
		t.Errorf("reported: %s", event)
	}
}

// newLoop is one whose requests of one verb about volumes have an error.
func newLoop(t *testing.T, events record.EventRecorder, claim *corev1.PersistentVolumeClaim, verb string, err error) *Controller {
	t.Helper()
	client := fake.NewClientset()
	if claim != nil {
		client = fake.NewClientset(claim)
	}
	client.PrependReactor(verb, persistentVolumes.Resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
	return loopOf(t, events, client)
}

func loopOf(t *testing.T, events record.EventRecorder, client *fake.Clientset) *Controller {
	t.Helper()
	c, cachesErr := caches.New(client, nil, "efs-stunnel")
	if cachesErr != nil {
		t.Fatal(cachesErr)
	}
	v, viewErr := observe.New(decide.Settings{Provisioner: wellknown.DefaultProvisioner}, c, func() targets.Snapshot { return targets.Snapshot{} })
	if viewErr != nil {
		t.Fatal(viewErr)
	}
	loop, loopErr := New(client, v, Options{Events: events, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	if loopErr != nil {
		t.Fatal(loopErr)
	}
	return loop
}

func setup(t *testing.T) operations.Operation {
	t.Helper()
	return operations.Operation{
		Kind:   operations.Setup,
		Owner:  operations.Owner{Volume: volumes.VolumeName(uid), Cluster: "c", Namespace: "shop", Claim: "cart", ClaimUID: string(uid)},
		Path:   "/shop/cart",
		Record: []byte(`{"fs": "fs-1", "size": "1Gi", "modes": ["RWX"], "class": "efs", "policy": "Delete"}`),
	}
}

func newVolume(t *testing.T) *corev1.PersistentVolume {
	t.Helper()
	object, err := volumes.FromOperation(setup(t), 20490, 0, wellknown.DefaultProvisioner)
	if err != nil {
		t.Fatal(err)
	}
	object.UID = "volume"
	return object
}
