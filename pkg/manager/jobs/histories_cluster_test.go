package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/events"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/manager/observe"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/manager/workers"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/worker/batch"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/test/support/memorytest"
)

const (
	historyFileSystem = "fs-0123456789abcdef0"
	historyPath       = "/team/shared"
	historyNamespace  = "team"
)

// sharedPath is one directory that claims of several clusters share, and what must stay in it.
type sharedPath struct {
	t        testing.TB
	rand     *rand.Rand
	dir      string
	now      time.Time
	clusters []*cluster
	// retained are, by volume, the files that were in the directory when its data was retained.
	retained map[string][]string
	story    []string
}

// cluster is a manager with the operations that it sends, and the objects that it decides from. The
// test plays the user, the binder, the claims loop and kubelet.
type cluster struct {
	*sharedPath
	*Controller

	number, claims int
}

func newSharedPath(t testing.TB, seed uint64, clusters int) *sharedPath {
	f := &sharedPath{
		t: t, rand: rand.New(rand.NewPCG(seed, 1)), dir: memorytest.Folder(t), //nolint:gosec // a test that is to be repeatable
		now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), retained: map[string][]string{},
	}
	for n := range clusters {
		f.clusters = append(f.clusters, f.newCluster(n))
	}
	return f
}

func (f *sharedPath) newCluster(number int) *cluster {
	client := newClient(f.t)
	c, err := caches.New(client, nil, "efs-stunnel")
	f.check(err)
	settings := decide.Settings{Provisioner: wellknown.DefaultProvisioner, Cluster: fmt.Sprintf("cluster-%d", number), Backoff: time.Minute}
	v, err := observe.New(settings, c, func() targets.Snapshot {
		return targets.Snapshot{Known: true, Listed: true, FileSystems: map[string]volumes.Candidate{historyFileSystem: {ID: historyFileSystem, Port: 20490}}}
	})
	f.check(err)
	v.Now = func() time.Time { return f.now }
	f.check(c.Classes.GetStore().Add(&storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "shared"}, Provisioner: wellknown.DefaultProvisioner,
		Parameters: map[string]string{"share_across_clusters": "true"},
	}))
	answer(client, "persistentvolumes", c.Volumes.GetStore())
	answer(client, "persistentvolumeclaims", c.Claims.GetStore())
	client.PrependReactor("get", "namespaces", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if get, ok := action.(clienttesting.GetAction); ok && get.GetName() != historyNamespace {
			return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, get.GetName())
		}
		return true, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: historyNamespace, UID: types.UID(fmt.Sprintf("namespace-of-%d", number))}}, nil
	})
	return &cluster{sharedPath: f, number: number, Controller: &Controller{
		refused: newRefused(), notCreated: noneRefused(),
		options: Options{Batch: 512, Jobs: mountjobs.Settings{Namespace: "efs-stunnel", Image: "image"}, Workers: &workers.Channel{}, Log: slog.New(slog.DiscardHandler)},
		client:  client, live: objects.Reader{Client: client}, gatherer: v, events: events.NewReporter(&record.FakeRecorder{}),
	}}
}

// answer has live reads answered from what the cache has.
func answer(client *fake.Clientset, resource string, store cache.Store) {
	client.PrependReactor("get", resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
		get, ok := action.(clienttesting.GetAction)
		if !ok {
			return false, nil, nil
		}
		for _, object := range store.List() {
			meta, isObject := object.(metav1.Object)
			found, isRuntime := object.(runtime.Object)
			if isObject && isRuntime && meta.GetName() == get.GetName() && meta.GetNamespace() == get.GetNamespace() {
				return true, found, nil
			}
		}
		return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: resource}, get.GetName())
	})
}

func (f *sharedPath) check(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatalf("%v\n%s", err, strings.Join(f.story, "\n"))
	}
}

func (f *sharedPath) say(format string, args ...any) {
	f.story = append(f.story, fmt.Sprintf(format, args...))
}

// files are those in the directory; none if it is not there.
func (f *sharedPath) files() []string {
	found, err := os.ReadDir(filepath.Join(f.dir, historyPath))
	if os.IsNotExist(err) {
		return nil
	}
	f.check(err)
	var names []string
	for _, file := range found {
		names = append(names, file.Name())
	}
	return names
}

func (c *cluster) volumes() []*corev1.PersistentVolume {
	var all []*corev1.PersistentVolume
	for _, object := range c.gatherer.Caches.Volumes.GetStore().List() {
		if volume, ok := object.(*corev1.PersistentVolume); ok {
			all = append(all, volume)
		}
	}
	slices.SortFunc(all, func(a, b *corev1.PersistentVolume) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (c *cluster) anyVolume(where func(*corev1.PersistentVolume) bool) *corev1.PersistentVolume {
	fitting := slices.DeleteFunc(c.volumes(), func(v *corev1.PersistentVolume) bool { return !where(v) })
	if len(fitting) == 0 {
		return nil
	}
	return fitting[c.rand.IntN(len(fitting))].DeepCopy()
}

func isReleased(v *corev1.PersistentVolume) bool { return v.Status.Phase == corev1.VolumeReleased }

func isRetained(v *corev1.PersistentVolume) bool {
	return v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain
}

// isKnown says that the ledger knows a volume, or that all who could take its data know it from the
// API. Other clusters do not: for them, a volume that a person saves when its cleanup is over is saved
// too late.
func (c *cluster) isKnown(v *corev1.PersistentVolume) bool {
	return len(c.clusters) == 1 || c.isOwner(v)
}

// isOwner says that the ledger knows a volume.
func (c *cluster) isOwner(v *corev1.PersistentVolume) bool {
	found, err := filepath.Glob(filepath.Join(c.dir, wellknown.OwnersDirectory, historyPath, wellknown.OwnerPrefix+v.Name+"*"))
	c.check(err)
	return len(found) > 0
}

// store writes a volume as the API would have it, and remembers what is retained from now on.
func (c *cluster) store(v *corev1.PersistentVolume) {
	c.check(c.gatherer.Caches.Volumes.GetStore().Add(v))
	switch {
	case !isRetained(v):
		delete(c.retained, v.Name) // a person decides that its data is not kept for it any more
	case isReleased(v) && c.retained[v.Name] == nil && c.isKnown(v):
		c.retained[v.Name] = c.files()
	}
}

func (c *cluster) addClaim(policy corev1.PersistentVolumeReclaimPolicy, volume string) *corev1.PersistentVolumeClaim {
	c.claims++
	name := fmt.Sprintf("claim-%d", c.claims)
	class := "shared"
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: historyNamespace, UID: types.UID(fmt.Sprintf("%08d-0000-4000-8000-%012d", c.number, c.claims)),
			CreationTimestamp: metav1.NewTime(c.now), Annotations: map[string]string{wellknown.AnnotationStorageProvisioner: wellknown.DefaultProvisioner},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, VolumeName: volume, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Selector:  &metav1.LabelSelector{MatchLabels: map[string]string{wellknown.LabelVolumeName: "shared", wellknown.LabelReclaimPolicy: string(policy)}},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
	c.check(c.gatherer.Caches.Claims.GetStore().Add(claim))
	c.say("cluster %d: claim %s with policy %s, volume %q", c.number, claim.UID, policy, volume)
	return claim
}

func (c *cluster) claimsThere() []*corev1.PersistentVolumeClaim {
	var all []*corev1.PersistentVolumeClaim
	for _, object := range c.gatherer.Caches.Claims.GetStore().List() {
		if claim, ok := object.(*corev1.PersistentVolumeClaim); ok {
			all = append(all, claim)
		}
	}
	slices.SortFunc(all, func(a, b *corev1.PersistentVolumeClaim) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (c *cluster) deleteClaim(claim *corev1.PersistentVolumeClaim) {
	c.say("cluster %d: claim %s is deleted", c.number, claim.UID)
	c.check(c.gatherer.Caches.Claims.GetStore().Delete(claim))
	for _, v := range c.volumes() {
		if ref := v.Spec.ClaimRef; ref != nil && ref.UID == claim.UID {
			c.releaseVolume(v.DeepCopy())
		}
	}
}

func (c *cluster) releaseVolume(v *corev1.PersistentVolume) {
	v.Status.Phase = corev1.VolumeReleased
	c.store(v)
}

// bind gives a volume to its claim, which writes a file at once.
func (c *cluster) bind(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) {
	claim = claim.DeepCopy()
	claim.Spec.VolumeName, claim.Status.Phase = v.Name, corev1.ClaimBound
	c.check(c.gatherer.Caches.Claims.GetStore().Add(claim))
	v.Status.Phase = corev1.VolumeBound
	v.Spec.ClaimRef.Name, v.Spec.ClaimRef.UID = claim.Name, claim.UID
	c.store(v)
	c.check(os.WriteFile(filepath.Join(c.dir, historyPath, string(claim.UID)), nil, 0o600))
}

// settle makes use of what the Jobs did, as the claims loop does.
func (c *cluster) settle() {
	for _, uid := range c.uids() {
		_, plan := c.gatherer.Decide(uid)
		for _, change := range plan.Changes {
			switch change := change.(type) {
			case decide.CreateVolume:
				c.create(uid, change)
			case decide.Warn:
				c.say("cluster %d: %s", c.number, change.Message)
			case decide.DeleteVolume:
				c.say("cluster %d: volume %s is done", c.number, change.Object.Name)
				c.markUsed(change)
				c.check(c.gatherer.Caches.Volumes.GetStore().Delete(change.Object))
			}
		}
	}
}

func (c *cluster) create(uid types.UID, change decide.CreateVolume) {
	v, err := volumes.FromOperation(change.Operation, 20490, change.Result.GID, wellknown.DefaultProvisioner)
	c.check(err)
	v.UID, v.CreationTimestamp = types.UID(v.Name), metav1.NewTime(c.now)
	c.say("cluster %d: volume %s is made", c.number, v.Name)
	if claim := c.gatherer.Caches.Claim(uid); claim != nil && claim.Spec.VolumeName == "" {
		c.bind(v, claim)
	} else {
		c.releaseVolume(v)
	}
}

// uids are those of all claims that there were.
func (c *cluster) uids() []types.UID {
	var uids []types.UID
	for n := 1; n <= c.claims; n++ {
		uids = append(uids, types.UID(fmt.Sprintf("%08d-0000-4000-8000-%012d", c.number, n)))
	}
	return uids
}

func (c *cluster) markUsed(p decide.DeleteVolume) {
	for _, job := range c.gatherer.Caches.JobsOfVolume(p.Object.Name) {
		if slices.Contains(p.MakerJobs, job.Name) {
			marked := job.DeepCopy()
			metav1.SetMetaDataAnnotation(&marked.ObjectMeta, wellknown.AnnotationUsed(p.Object.Name), wellknown.ValueTrue)
			c.check(c.gatherer.Caches.Jobs.GetStore().Add(marked))
		}
	}
}

// run is the next mount Job, which dies after some steps; none if it is not to die.
func (c *cluster) run(steps int) {
	<-time.After(time.Hour) // of the bubble, for what depends on the monotonic clock
	c.now = c.now.Add(time.Hour)
	for _, uid := range c.uids() {
		if steps > 0 && c.rand.IntN(8) == 0 {
			continue // the claims loop has not come to it yet
		}
		c.gatherer.Decide(uid)
	}
	p := planFor(ready(c.observe(historyFileSystem)))
	var due []decide.Pending
	for _, next := range changesOf[createJob](p) {
		due = next.due
	}
	batch, err := c.batch(c.t.Context(), due)
	c.check(err)
	for _, change := range releases(p) {
		c.check(c.gatherer.Caches.Jobs.GetStore().Delete(change.Job))
	}
	if len(batch) == 0 {
		return
	}
	job, err := mountjobs.Build(mountjobs.Spec{
		Settings: c.options.Jobs, FileSystemID: historyFileSystem, Operations: batch,
		Number: mountjobs.NextNumber(mountjobs.Mount, historyFileSystem, c.observe(historyFileSystem).named),
	})
	c.check(err)
	job.UID, job.CreationTimestamp = types.UID(fmt.Sprint(job.Name, " at ", c.now)), metav1.NewTime(c.now)
	c.finish(job, c.carryOut(batch, steps))
}

func (c *cluster) carryOut(ops []operations.Operation, steps int) []byte {
	ctx := context.Context(c.t.Context())
	if steps > 0 {
		d := &dying{Context: ctx}
		d.left.Store(int64(steps))
		ctx = d
	}
	fs, err := fsroot.Open(c.t.Context(), c.dir, fsroot.Options{FileSystemID: historyFileSystem})
	c.check(err)
	defer fs.Close()
	report := batch.Run(ctx, fs, ops, batch.Options{})
	for i, o := range ops {
		c.say("cluster %d: %s %s (leave to others: %v): %s %s", c.number, o.Kind, o.Volume, o.LeaveToOthers, report.Results[i].State, report.Results[i].Message)
	}
	if steps > 0 && c.rand.IntN(2) == 0 {
		c.say("cluster %d: the report is lost", c.number)
		return nil
	}
	return report.TerminationMessage()
}

// dying is the context of a process that dies after some steps.
type dying struct {
	context.Context
	left atomic.Int64
}

// Err counts the steps: before each of them it is asked, for some side by side.
func (d *dying) Err() error {
	if d.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// finish plays kubelet; without a report, it is unknown what the Job did.
func (c *cluster) finish(job *batchv1.Job, report []byte) {
	code := int32(0)
	if report == nil {
		code = 137
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: job.Name, Namespace: job.Namespace, UID: job.UID + "-pod", CreationTimestamp: job.CreationTimestamp,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Status: corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{{
			Name: mountjobs.ContainerName, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: code, Message: string(report), FinishedAt: metav1.NewTime(c.now.Add(time.Minute)),
			}},
		}}},
	}
	c.check(c.gatherer.Caches.Jobs.GetStore().Add(job))
	c.check(c.gatherer.Caches.Pods.GetStore().Add(pod))
}
