package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/manager/observe"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

const otherFileSystem = "fs-00000002"

// loop is a controller whose caches are filled by the test.
type loop struct {
	*Controller
	client *fake.Clientset
	lists  *metadatafake.FakeMetadataClient
	// decisions counts the claims that were decided about.
	decisions *atomic.Int64
}

func newLoop(t testing.TB) loop {
	t.Helper()
	client, scheme := fake.NewClientset(), metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	lists := metadatafake.NewSimpleMetadataClient(scheme)
	c, err := caches.New(client, lists, "efs-stunnel")
	if err != nil {
		t.Fatal(err)
	}
	decisions := &atomic.Int64{}
	snapshot := targets.Snapshot{Known: true, Listed: true, FileSystems: map[string]volumes.Candidate{
		fileSystem:      {ID: fileSystem, Port: 20490},
		otherFileSystem: {ID: otherFileSystem, Port: 20491},
	}}
	v, err := observe.New(decide.Settings{Provisioner: wellknown.DefaultProvisioner, Cluster: "cluster"}, c, func() targets.Snapshot { return snapshot })
	if err != nil {
		t.Fatal(err)
	}
	clock := v.Now
	v.Now = func() (at time.Time) {
		decisions.Add(1)
		return clock()
	}
	controller, err := New(client, v, Options{
		Jobs:  mountjobs.Settings{Namespace: "efs-stunnel", Image: "worker"},
		Batch: 512, Events: record.NewFakeRecorder(10), Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
		TaskEnded: func(string, string, []status.Condition) {}, Blocked: func(string, map[string]decide.Verdict) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{fileSystem, otherFileSystem} {
		add(t, c.Classes.GetStore(), &storagev1.StorageClass{
			ObjectMeta:  metav1.ObjectMeta{Name: id},
			Provisioner: wellknown.DefaultProvisioner,
			Parameters:  map[string]string{"default_file_system_id": id},
		})
	}
	takeKeys(t, controller)
	return loop{controller, client, lists, decisions}
}

// takeKeys has events enqueue file systems, as while a manager leads. No worker takes them.
func takeKeys(t testing.TB, c *Controller) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	running, ended := make(chan struct{}), make(chan error)
	go func() { ended <- c.queue.Run(ctx, 0, func() { close(running) }) }()
	<-running
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func add(t testing.TB, store interface{ Add(any) error }, object any) {
	t.Helper()
	if err := store.Add(object); err != nil {
		t.Fatal(err)
	}
}

func claimNumber(n int) types.UID { return types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", n)) }

// waitingClaim requests a volume on the file system; a lower number has waited longer.
func waitingClaim(n int) *corev1.PersistentVolumeClaim {
	class := fileSystem
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: fmt.Sprintf("claim-%d", n), UID: claimNumber(n),
			CreationTimestamp: metav1.NewTime(now.Add(time.Duration(n) * time.Second)),
			Annotations:       map[string]string{wellknown.AnnotationStorageProvisioner: wellknown.DefaultProvisioner},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
}

// releasedVolume is one whose claim is gone.
func releasedVolume(n int) *corev1.PersistentVolume {
	path := fmt.Sprintf("/team/%d", n)
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: volumes.VolumeName(claimNumber(n)), UID: types.UID(fmt.Sprint("volume-", n)),
			CreationTimestamp: metav1.NewTime(now.Add(time.Duration(n) * time.Second)),
			Annotations: map[string]string{
				wellknown.AnnotationProvisionedBy: wellknown.DefaultProvisioner,
				wellknown.AnnotationFileSystemID:  fileSystem, wellknown.AnnotationPath: path,
			},
		},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef:                      &corev1.ObjectReference{Namespace: "team", Name: fmt.Sprintf("claim-%d", n), UID: claimNumber(n)},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: wellknown.LoopbackAddress, Path: path}},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeReleased},
	}
}
