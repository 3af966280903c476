package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/test/integration/cluster"
	"gnuthought.com/efs-stunnel/test/integration/kubelet"
)

const (
	team  = "team"   // namespace of all claims
	class = "shared" // of all claims
	node  = "node"

	// podTime is how long a simulated pod takes until its container starts.
	podTime = 2 * time.Second
	// parallel requests make and delete claims.
	parallel = 50

	stepTimeout  = time.Minute
	pollInterval = 10 * time.Millisecond
)

// testbed is a cluster of its own for one measurement, with one node and one file system.
type testbed struct {
	*observer
	client     kubernetes.Interface
	kubeconfig string
	folder     string // for all files of the testbed

	cluster *cluster.Cluster
	end     context.CancelFunc // of what runs in this process
	ended   chan struct{}      // closed when that has ended
}

// newTestbed starts a cluster. Stop must be called, unless there is an error. fail is called
// with errors of the simulated node.
func newTestbed(ctx context.Context, o options, fail func(error)) (*testbed, error) {
	folder, err := os.MkdirTemp(o.scratch, "efs-stunnel-bench-")
	if err != nil {
		return nil, fmt.Errorf("making a folder: %w", err)
	}
	bed := &testbed{folder: folder, ended: make(chan struct{}), end: func() {}}
	if bed.cluster, err = cluster.Start(ctx, o.programs, o.binderQPS); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	if err := bed.setUp(ctx, fail); err != nil {
		return nil, errors.Join(fmt.Errorf("setting up a cluster: %w", err), bed.stop())
	}
	return bed, nil
}

func (bed *testbed) setUp(ctx context.Context, fail func(error)) error {
	config := bed.cluster.Config()
	if err := bed.writeKubeconfig(config); err != nil {
		return err
	}
	// As in the manager: what measures should take little of the machine.
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	var err error
	if bed.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	for _, make := range []func(context.Context) error{bed.makeNamespaces, bed.makeNode, bed.makeAgent, bed.makeTargets} {
		if err := make(ctx); err != nil {
			return err
		}
	}
	return bed.run(ctx, fail)
}

// run starts the simulated kubelet and the observer, which run in this process.
func (bed *testbed) run(ctx context.Context, fail func(error)) error {
	fileSystem := filepath.Join(bed.folder, fileSystemID)
	if err := os.Mkdir(fileSystem, 0o755); err != nil {
		return err
	}
	k := kubelet.New(kubelet.Options{
		Client: bed.client, Namespace: wellknown.Namespace, Scratch: filepath.Join(bed.folder, "pods"), Failed: fail,
		Tunnel: func(context.Context, int) (string, error) { return fileSystem, nil },
	})
	k.SetBehavior(kubelet.Behavior{Delay: podTime})
	running, end := context.WithCancel(ctx)
	var err error
	if bed.observer, err = watch(running, bed.client); err != nil {
		end()
		return err
	}
	bed.end = end
	go func() {
		defer close(bed.ended)
		k.Run(running)
	}()
	return nil
}

// stop ends the cluster and removes its files.
func (bed *testbed) stop() error {
	bed.end()
	if bed.observer != nil {
		<-bed.ended
	}
	return errors.Join(bed.cluster.Stop(), os.RemoveAll(bed.folder))
}

func (bed *testbed) writeKubeconfig(config *rest.Config) error {
	bed.kubeconfig = filepath.Join(bed.folder, "kubeconfig")
	file := clientcmdapi.NewConfig()
	file.Clusters["bench"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos["bench"] = &clientcmdapi.AuthInfo{Token: config.BearerToken}
	file.Contexts["bench"] = &clientcmdapi.Context{Cluster: "bench", AuthInfo: "bench"}
	file.CurrentContext = "bench"
	return clientcmd.WriteToFile(*file, bed.kubeconfig)
}

func (bed *testbed) makeNamespaces(ctx context.Context) error {
	for _, name := range []string{wellknown.Namespace, team} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := bed.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: wellknown.WorkerServiceAccount}}
	_, err := bed.client.CoreV1().ServiceAccounts(wellknown.Namespace).Create(ctx, account, metav1.CreateOptions{})
	return err
}

func (bed *testbed) makeNode(ctx context.Context) error {
	made, err := bed.client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: node, Labels: map[string]string{corev1.LabelHostname: node},
	}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	made.Spec.Taints = nil // admission makes every node begin as not ready
	_, err = bed.client.CoreV1().Nodes().Update(ctx, made, metav1.UpdateOptions{})
	return err
}

// makeAgent makes the pod beside which mount Jobs run.
func (bed *testbed) makeAgent(ctx context.Context) error {
	no := false
	pods := bed.client.CoreV1().Pods(wellknown.Namespace)
	pod, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: wellknown.NodeDaemonSet, Labels: mountjobs.AgentLabels()},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: wellknown.WorkerServiceAccount, AutomountServiceAccountToken: &no,
			Containers: []corev1.Container{{Name: "agent", Image: "agent"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// fileSystemID names the only file system, which an administrator has pinned.
const (
	fileSystemID = "fs-0123456789abcdef0"
	pinned       = `efs_stunnel_targets:
  ` + fileSystemID + `:
    name: bench
    mount_target_ip_by_zone: {us-east-1a: 10.0.0.4}
    dns_name: ` + fileSystemID + `.efs.us-east-1.amazonaws.com
`
)

func (bed *testbed) makeTargets(ctx context.Context) error {
	_, err := bed.client.CoreV1().ConfigMaps(wellknown.Namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: wellknown.PinnedConfigMap},
		Data:       map[string]string{wellknown.TargetsKey: pinned},
	}, metav1.CreateOptions{})
	return err
}

func (bed *testbed) makeClass(ctx context.Context, provisioner string) error {
	return bed.makeClassOf(ctx, class, provisioner, nil)
}

func (bed *testbed) makeClassOf(ctx context.Context, class, provisioner string, parameters map[string]string) error {
	_, err := bed.client.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: provisioner, Parameters: parameters,
	}, metav1.CreateOptions{})
	return err
}

// names are those of n claims.
func names(what string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s-%05d", what, i)
	}
	return all
}

// each calls for every name, many at once.
func each(ctx context.Context, names []string, call func(context.Context, string) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, name := range names {
		group.Go(func() error { return call(ctx, name) })
	}
	return group.Wait()
}

func (bed *testbed) createClaim(ctx context.Context, name string) error {
	_, err := bed.createClaimFor(ctx, name, class, "")
	return err
}

func oneGibibyte() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
}

// createClaimFor makes a claim of a class; claims with the same volume name share a directory.
func (bed *testbed) createClaimFor(ctx context.Context, name, class, volumeName string) (*corev1.PersistentVolumeClaim, error) {
	bed.record(name, func(s *claimTimes) { setOnce(&s.created) })
	var selector *metav1.LabelSelector
	if volumeName != "" {
		selector = metav1.SetAsLabelSelector(map[string]string{wellknown.LabelVolumeName: volumeName})
	}
	claim, err := bed.client.CoreV1().PersistentVolumeClaims(team).Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, Selector: selector,
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources:   corev1.VolumeResourceRequirements{Requests: oneGibibyte()},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("creating claim %s: %w", name, err)
	}
	return claim, nil
}

func (bed *testbed) deleteClaim(ctx context.Context, name string) error {
	bed.record(name, func(s *claimTimes) { setOnce(&s.deleted) })
	if err := bed.client.CoreV1().PersistentVolumeClaims(team).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("deleting claim %s: %w", name, err)
	}
	return nil
}
