// Package testenv gives each test a part of a shared cluster that no other test uses: namespaces, a
// provisioner, nodes with agents, file systems with an EFS API of their own, and a simulated
// kubelet. When a test fails, the environment dumps its state.
package testenv

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
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/test/integration/cluster"
	"gnuthought.com/efs-stunnel/test/integration/kubelet"
	"gnuthought.com/efs-stunnel/test/support/efstest"
)

// Env is one test's part of the cluster.
type Env struct {
	testing.TB
	// Config and the clients are an administrator's, without rate limits.
	Config  *rest.Config
	Client  kubernetes.Interface
	Dynamic dynamic.Interface

	Number      int    // of the environment; part of every name in it
	ClusterUID  string // of namespace kube-system
	Namespace   string // the manager's
	Team        string // a namespace for claims
	Provisioner string
	Nodes       []string // each with a ready agent

	EFS     *efstest.Fake
	Kubelet *kubelet.Kubelet

	cluster    *cluster.Cluster
	folder     string
	namespaces []string
	status     corev1.NodeStatus // of nodes: where the apiserver gets logs

	mu      sync.Mutex
	folders map[string]string // guarded by mu; by file system id
}

// New makes an environment. Everything in it is deleted at the end of the test, also objects with
// finalizers.
func New(t testing.TB, c *cluster.Cluster) *Env {
	t.Helper()
	config := c.Config()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatalf("making a client: %v", err)
	}
	untyped, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatalf("making a dynamic client: %v", err)
	}
	n := c.NextNumber()
	e := &Env{
		TB: t, Config: config, Client: client, Dynamic: untyped, Number: n,
		Namespace:   fmt.Sprintf("%s-%d", wellknown.Namespace, n),
		Team:        fmt.Sprintf("team-%d", n),
		Provisioner: fmt.Sprintf("%s-%d", wellknown.DefaultProvisioner, n),
		EFS:         efstest.New(),
		cluster:     c, folder: t.TempDir(), folders: map[string]string{},
	}
	e.EFS.SetSource("123456789012/us-east-1")
	t.Cleanup(e.cleanUp)
	e.ClusterUID = string(must(client.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{}))(t).UID)
	e.NewNamespace(e.Namespace)
	e.NewNamespace(e.Team)
	e.newServiceAccount(wellknown.WorkerServiceAccount)
	e.startKubelet()
	e.newNode("a", "us-east-1a")
	e.newNode("b", "us-east-1b")
	return e
}

// must ends the test with the error of a call.
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// startKubelet stops the kubelet before the cleanup, which needs none.
func (e *Env) startKubelet() {
	e.Kubelet = kubelet.New(kubelet.Options{
		Client: e.Client, Namespace: e.Namespace, Tunnel: e.tunnel,
		Scratch: filepath.Join(e.folder, "pods"),
		Failed:  func(err error) { e.Errorf("kubelet: %v", err) },
	})
	status, closeLogs, err := e.Kubelet.ServeLogs()
	e.Cleanup(closeLogs)
	if err != nil {
		e.Fatal(err)
	}
	e.status = status
	ctx, stop := context.WithCancel(context.WithoutCancel(e.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.Kubelet.Run(ctx)
	}()
	e.Cleanup(func() {
		stop()
		<-ended
	})
}

// tunnel resolves a port through the agents' table, so that a wrong port mounts the wrong data.
func (e *Env) tunnel(ctx context.Context, port int) (folder string, err error) {
	table, err := e.Table(ctx)
	if err != nil {
		return "", err
	}
	key, found := table.Owners()[port]
	if !found {
		return "", fmt.Errorf("the table has no target with port %d", port)
	}
	return e.folderOf(key.FileSystem)
}

// Table reads the target table from its ConfigMap. Without the ConfigMap it returns an error.
func (e *Env) Table(ctx context.Context) (ports.Table, error) {
	object, err := e.Client.CoreV1().ConfigMaps(e.Namespace).Get(ctx, wellknown.TargetsConfigMap, metav1.GetOptions{})
	if err != nil {
		return ports.Table{}, err
	}
	return ports.Decode([]byte(object.Data[wellknown.TargetsKey]))
}

// Folder returns the folder on this machine that stands for a file system.
func (e *Env) Folder(fileSystemID string) string {
	e.Helper()
	folder, err := e.folderOf(fileSystemID)
	if err != nil {
		e.Fatal(err)
	}
	return folder
}

func (e *Env) folderOf(fileSystemID string) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	folder, ok := e.folders[fileSystemID]
	if !ok {
		return "", fmt.Errorf("the environment has no file system %s", fileSystemID)
	}
	return folder, nil
}

// fileSystems returns the sorted ids.
func (e *Env) fileSystems() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Sorted(maps.Keys(e.folders))
}

// Exists reports whether a path of a file system exists.
func (e *Env) Exists(fileSystemID, path string) bool {
	e.Helper()
	_, err := os.Lstat(filepath.Join(e.Folder(fileSystemID), path))
	return err == nil
}

// Named makes a name that no other environment has.
func (e *Env) Named(what string) string { return fmt.Sprintf("%s-%d", what, e.Number) }

// NewClass creates a storage class of the environment's provisioner, with the name Named(what).
func (e *Env) NewClass(what string, parameters map[string]string, edits ...func(*storagev1.StorageClass)) *storagev1.StorageClass {
	e.Helper()
	class := &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: e.Named(what)},
		Provisioner: e.Provisioner,
		Parameters:  parameters,
	}
	for _, edit := range edits {
		edit(class)
	}
	return must(e.Client.StorageV1().StorageClasses().Create(e.Context(), class, metav1.CreateOptions{}))(e)
}

// NewClaim creates a ReadWriteMany claim of a class, by default in the team's namespace.
func (e *Env) NewClaim(name, class string, edits ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	e.Helper()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Team, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources:        corev1.VolumeResourceRequirements{Requests: oneGibibyte()},
		},
	}
	for _, edit := range edits {
		edit(claim)
	}
	return must(e.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Create(e.Context(), claim, metav1.CreateOptions{}))(e)
}

// WithMatchLabel adds a label to the claim's selector.
func WithMatchLabel(key, value string) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) {
		if claim.Spec.Selector == nil {
			claim.Spec.Selector = &metav1.LabelSelector{}
		}
		metav1.AddLabelToSelector(claim.Spec.Selector, key, value)
	}
}
