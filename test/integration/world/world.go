// Package world gives each test a part of a shared cluster that no other test sees: namespaces,
// a provisioner, nodes with agents, file systems with an EFS API of their own, and a kubelet.
// When a test fails, the world tells its story.
package world

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"gnuthought.com/efs-stunnel/pkg/efs/efstest"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
	"gnuthought.com/efs-stunnel/test/integration/cluster"
	"gnuthought.com/efs-stunnel/test/integration/kubelet"
)

// World is what one test has of the cluster.
type World struct {
	testing.TB
	// Config and Client are an administrator's, without limits.
	Config *rest.Config
	Client kubernetes.Interface

	Number      int    // of the world; part of every name in it
	ClusterUID  string // of namespace kube-system
	Namespace   string // the manager's
	Team        string // a namespace for claims
	Provisioner string
	Nodes       []string // each with an agent that is ready

	EFS     *efstest.Fake
	Kubelet *kubelet.Kubelet

	cluster    *cluster.Cluster
	folder     string
	namespaces []string

	mu      sync.Mutex
	folders map[string]string // guarded by mu; by file system id
}

// New makes a world. Everything in it is gone when the test is over, also what has finalizers.
func New(t testing.TB, c *cluster.Cluster) *World {
	t.Helper()
	config := c.Config()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatalf("making a client: %v", err)
	}
	n := c.NextNumber()
	w := &World{
		TB: t, Config: config, Client: client, Number: n,
		Namespace:   fmt.Sprintf("%s-%d", wellknown.Namespace, n),
		Team:        fmt.Sprintf("team-%d", n),
		Provisioner: fmt.Sprintf("%s-%d", wellknown.DefaultProvisioner, n),
		EFS:         efstest.New(),
		cluster:     c, folder: t.TempDir(), folders: map[string]string{},
	}
	w.EFS.SetSource("123456789012/us-east-1")
	t.Cleanup(w.end)
	w.ClusterUID = string(must(client.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{}))(t).UID)
	w.NewNamespace(w.Namespace)
	w.NewNamespace(w.Team)
	w.newServiceAccount(wellknown.WorkerServiceAccount)
	w.newNode("a", "us-east-1a")
	w.newNode("b", "us-east-1b")
	w.startKubelet()
	return w
}

// must makes the error of a call the end of the test.
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// startKubelet has it end before the cleanup, which needs no kubelet.
func (w *World) startKubelet() {
	w.Kubelet = kubelet.New(kubelet.Options{
		Client: w.Client, Namespace: w.Namespace, Tunnel: w.tunnel,
		Scratch: filepath.Join(w.folder, "pods"),
		Failed:  func(err error) { w.Errorf("kubelet: %v", err) },
	})
	ctx, stop := context.WithCancel(context.WithoutCancel(w.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Kubelet.Run(ctx)
	}()
	w.Cleanup(func() {
		stop()
		<-ended
	})
}

// tunnel leads where the agents' table says, so that a wrong port leads to the wrong data.
func (w *World) tunnel(ctx context.Context, port int) (folder string, err error) {
	table, err := w.table(ctx)
	if err != nil {
		return "", err
	}
	key, found := table.Owners()[port]
	if !found {
		return "", fmt.Errorf("the table has no target with port %d", port)
	}
	return w.folderOf(key.FileSystem)
}

func (w *World) table(ctx context.Context) (ports.Table, error) {
	object, err := w.Client.CoreV1().ConfigMaps(w.Namespace).Get(ctx, wellknown.TargetsConfigMap, metav1.GetOptions{})
	if err != nil {
		return ports.Table{}, err
	}
	return ports.Decode([]byte(object.Data[wellknown.TargetsKey]))
}

// Table is what the ConfigMap says, and an error while it says nothing.
func (w *World) Table() (ports.Table, error) { return w.table(w.Context()) }

// Folder stands for a file system.
func (w *World) Folder(fileSystemID string) string {
	w.Helper()
	folder, err := w.folderOf(fileSystemID)
	if err != nil {
		w.Fatal(err)
	}
	return folder
}

func (w *World) folderOf(fileSystemID string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	folder, ok := w.folders[fileSystemID]
	if !ok {
		return "", fmt.Errorf("the world has no file system %s", fileSystemID)
	}
	return folder, nil
}

// fileSystems are the ids, in order.
func (w *World) fileSystems() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.folders))
}

// Exists says whether something is at a path of a file system.
func (w *World) Exists(fileSystemID, path string) bool {
	w.Helper()
	_, err := os.Lstat(filepath.Join(w.Folder(fileSystemID), path))
	return err == nil
}

// Named is a name that only this world has.
func (w *World) Named(what string) string { return fmt.Sprintf("%s-%d", what, w.Number) }

// NewClass makes a storage class of the world's provisioner. Its name is Named(what).
func (w *World) NewClass(what string, parameters map[string]string, edits ...func(*storagev1.StorageClass)) *storagev1.StorageClass {
	w.Helper()
	class := &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: w.Named(what)},
		Provisioner: w.Provisioner,
		Parameters:  parameters,
	}
	for _, edit := range edits {
		edit(class)
	}
	return must(w.Client.StorageV1().StorageClasses().Create(w.Context(), class, metav1.CreateOptions{}))(w)
}

// NewClaim makes a claim in the team's namespace for shared storage of a class.
func (w *World) NewClaim(name, class string, edits ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	w.Helper()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Team, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources:        corev1.VolumeResourceRequirements{Requests: oneGibibyte()},
		},
	}
	for _, edit := range edits {
		edit(claim)
	}
	return must(w.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Create(w.Context(), claim, metav1.CreateOptions{}))(w)
}

// WithLabels are a claim's wishes.
func WithLabels(labels map[string]string) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	}
}
