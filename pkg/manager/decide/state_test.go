package decide

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

const (
	provisioner = "example.com/efs"
	cluster     = "11111111-0000-0000-0000-000000000000"
	fs1, fs2    = "fs-00000001", "fs-00000002"
	uid         = types.UID("22222222-0000-0000-0000-000000000000")
	otherUID    = types.UID("33333333-0000-0000-0000-000000000000")
	backoff     = time.Minute
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// fixture is a State in the making, of a claim that nothing is wrong with.
type fixture struct {
	State
	attempts map[string][]Attempt
	holders  map[string][]string
	inUse    map[string]string // the file system where a path is
}

func newState(change ...func(*fixture)) State {
	w := &fixture{attempts: map[string][]Attempt{}, holders: map[string][]string{}}
	w.State = State{
		Settings: Settings{Provisioner: provisioner, Cluster: cluster, Backoff: backoff},
		Now:      now,
		UID:      uid,
		Claim:    newClaim(),
		Class:    newClass(),
		Holders:  func(path string) []string { return w.holders[path] },
		InUse:    func(id, path string) bool { return w.inUse[path] == id },
		Attempts: func(volume string) []Attempt { return w.attempts[volume] },
		Targets: targets.Snapshot{Known: true, Listed: true, FileSystems: map[string]volumes.Candidate{
			fs1: {ID: fs1, Port: 20490},
		}},
	}
	for _, c := range change {
		c(w)
	}
	return w.State
}

func newClaim() *corev1.PersistentVolumeClaim {
	class := "efs"
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "cart", UID: uid, CreationTimestamp: metav1.NewTime(now.Add(-time.Minute)),
			Annotations: map[string]string{wellknown.AnnotationStorageProvisioner: provisioner},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
}

func newClass() *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "efs", UID: "class", ResourceVersion: "1"}, Provisioner: provisioner}
}

// path is the path of the claim's directory.
const path = "/shop/cart-" + string(uid)

func setup() operations.Operation { return ofPolicy("Delete") }

func restored(o operations.Operation) operations.Operation {
	o.Kind = operations.Restore
	return o
}

// ofPolicy returns the setup of a volume with a reclaim policy.
func ofPolicy(policy string) operations.Operation {
	record, err := json.Marshal(map[string]any{"fs": fs1, "size": "1Gi", "modes": []string{"RWX"}, "class": "efs", "policy": policy})
	if err != nil {
		panic(err)
	}
	return operations.Operation{
		Kind:   operations.Setup,
		Owner:  operations.Owner{Volume: volumes.VolumeName(uid), Cluster: cluster, Namespace: "shop", Claim: "cart", ClaimUID: string(uid)},
		Path:   path,
		Record: record,
	}
}

func cleanup() operations.Operation {
	o := setup()
	o.Kind, o.Record = operations.Cleanup, nil
	return o
}

func try(o operations.Operation, number int) operations.Operation {
	o.Try = number
	return o
}

// ended returns an attempt of a Job that ended a minute ago.
func ended(o operations.Operation, result operations.Result) Attempt {
	return Attempt{
		Job: "efs-mount-" + fs1 + "-00001", FileSystemID: fs1, Began: now.Add(-2 * time.Minute), Ended: now.Add(-time.Minute),
		State: mountjobs.Finished, Operation: o, Result: result, Unused: true,
	}
}

func running(o operations.Operation) Attempt {
	return Attempt{
		Job: "efs-mount-" + fs1 + "-00002", FileSystemID: fs1, Began: now.Add(-time.Second), Until: now.Add(time.Minute),
		State: mountjobs.Running, Operation: o, Unused: true,
	}
}

func used(a Attempt) Attempt {
	a.Unused = false
	return a
}

func withAttempts(attempts ...Attempt) func(*fixture) {
	return func(w *fixture) {
		for _, a := range attempts {
			w.attempts[a.Operation.Volume] = append(w.attempts[a.Operation.Volume], a)
		}
	}
}

func withoutClaim(w *fixture) { w.Claim, w.Class = nil, nil }

var (
	done    = operations.Result{State: operations.Done}
	failed  = operations.Result{State: operations.Failed, Reason: operations.Nested, Message: "it is nested"}
	lost    = operations.Result{}
	stopped = operations.Result{State: operations.NotDone, Reason: operations.Stopped}
	refused = operations.Result{State: operations.NotDone, Reason: operations.WrongFileSystem, Message: "it is another file system"}
)

// newVolume returns the claim's volume, bound, as the claims loop makes it.
func newVolume(t *testing.T, change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	t.Helper()
	object, err := volumes.FromOperation(setup(), 20490, 0, provisioner)
	if err != nil {
		t.Fatal(err)
	}
	object.UID = "volume"
	object.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
	object.Status.Phase = corev1.VolumeBound
	for _, c := range change {
		c(object)
	}
	return object
}

func released(object *corev1.PersistentVolume) { object.Status.Phase = corev1.VolumeReleased }

func retained(object *corev1.PersistentVolume) {
	object.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
}

func noFinalizer(object *corev1.PersistentVolume) { object.Finalizers = nil }

func withVolume(object *corev1.PersistentVolume) func(*fixture) {
	return func(w *fixture) {
		w.Volumes = append(w.Volumes, Volume{Volume: volumes.Read(object, provisioner), Claim: w.Claim})
	}
}
