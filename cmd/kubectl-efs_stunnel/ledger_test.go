package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/worker"
)

const (
	testFS      = "fs-0123456789abcdef0"
	ownCluster  = "c1c1c1c1-0000-4000-8000-000000000001"
	goneCluster = "c2c2c2c2-0000-4000-8000-000000000002"
	teamUID     = "aaaaaaaa-0000-4000-8000-000000000001"
)

// ledgerCluster is a cluster with one file system, whose Jobs run mountjob itself on a folder.
type ledgerCluster struct {
	*testing.T
	*fake.Clientset
	folder string
	log    []byte   // of the last pod
	ran    []string // Jobs
}

func newLedgerCluster(t *testing.T) *ledgerCluster {
	t.Helper()
	table := ports.Encode(ports.Table{Targets: map[string]ports.Target{testFS: {Port: 20490}}})
	in := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: wellknown.Namespace, Name: name}
	}
	c := &ledgerCluster{T: t, folder: t.TempDir()}
	c.Clientset = fake.NewClientset(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: ownCluster}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", UID: teamUID}},
		&appsv1.DaemonSet{ObjectMeta: in(wellknown.NodeDaemonSet)},
		&appsv1.Deployment{ObjectMeta: in(wellknown.ManagerDeployment), Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Env: []corev1.EnvVar{{Name: "WORKER_IMAGE", Value: "worker:1"}}}}},
		}}},
		&corev1.ConfigMap{ObjectMeta: in(wellknown.TargetsConfigMap), Data: map[string]string{wellknown.TargetsKey: string(table)}},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "efs"}, Provisioner: wellknown.DefaultProvisioner},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Provisioner: "example.com/other"},
	)
	c.PrependReactor("create", "jobs", c.runJob)
	c.PrependReactor("get", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return action.GetSubresource() == "log", &runtime.Unknown{Raw: c.log}, nil
	})
	return c
}

// runJob makes the pod of a Job, which has ended.
func (c *ledgerCluster) runJob(action clienttesting.Action) (bool, runtime.Object, error) {
	create, _ := action.(clienttesting.CreateAction)
	job, ok := create.GetObject().(*batchv1.Job)
	if !ok {
		c.Errorf("%T was created", create.GetObject())
		return false, nil, nil
	}
	c.ran = append(c.ran, job.Name)
	code, output := c.mountjob(job.Spec.Template.Spec.Containers[0].Args...)
	c.log = output
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace, Name: job.Name + "-pod", Labels: map[string]string{batchv1.JobNameLabel: job.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: mountjobs.ContainerName, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: int32(code)}},
		}}},
	}
	return false, nil, c.Tracker().Add(pod)
}

func (c *ledgerCluster) mountjob(args ...string) (code int, output []byte) {
	var out bytes.Buffer
	for i, arg := range args {
		if strings.HasPrefix(arg, "--directory=") {
			args[i] = "--directory=" + c.folder
		}
	}
	program := worker.Program{
		Stdout: &out, Stderr: &out, Getenv: func(string) string { return "" }, Now: time.Now,
		CheckMount: func(string) error { return nil },
	}
	code = program.Run(c.Context(), append(args, "--termination-log="+filepath.Join(c.TempDir(), "log")))
	return code, out.Bytes()
}

// do carries out operations as a mount Job.
func (c *ledgerCluster) do(ops ...operations.Operation) {
	c.Helper()
	data, err := operations.Encode(ops)
	if err != nil {
		c.Fatal(err)
	}
	file := filepath.Join(c.TempDir(), "operations.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		c.Fatal(err)
	}
	if code, output := c.mountjob("run", "--file-system-id="+testFS, "--directory=", "--operations="+file); code != 0 {
		c.Fatalf("%s", output)
	}
}

// discard makes a claim's directory, and moves it to the trash.
func (c *ledgerCluster) discard(owner operations.Owner, keep string) {
	c.Helper()
	path := "/" + owner.Namespace + "/" + owner.Claim
	directory := operations.Directory{UID: os.Getuid(), GID: os.Getgid()}
	c.do(operations.Operation{Kind: operations.Setup, Owner: owner, Path: path, Directory: directory})
	c.do(operations.Operation{Kind: operations.Cleanup, Owner: owner, Path: path, Keep: keep})
}

// claimOf returns an owner; the last digit of its uid is n.
func claimOf(cluster, namespace, claim, n string) operations.Owner {
	uid := "00000000-0000-4000-8000-00000000000" + n
	return operations.Owner{Volume: "pvc-" + uid, Cluster: cluster, Namespace: namespace, NamespaceUID: teamUID, Class: "efs", Claim: claim, ClaimUID: uid}
}

// isThere reports whether the volume of a claim is in the trash.
func (c *ledgerCluster) isTrashed(owner operations.Owner) bool {
	trash := filepath.Join(c.folder, wellknown.TrashDirectory)
	_, err := os.Stat(filepath.Join(trash, owner.Volume))
	kept, globErr := filepath.Glob(filepath.Join(trash, "*", owner.Volume))
	return err == nil || globErr != nil || len(kept) > 0
}

// expectNoJobs fails if the plugin has left one.
func (c *ledgerCluster) expectNoJobs() {
	c.Helper()
	jobs, err := c.BatchV1().Jobs(metav1.NamespaceAll).List(c.Context(), metav1.ListOptions{})
	if err != nil || len(jobs.Items) > 0 {
		c.Errorf("Jobs are left: %v, %v", jobs.Items, err)
	}
}
