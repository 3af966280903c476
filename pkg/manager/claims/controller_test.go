package claims

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/queue"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

func operationOf(t *testing.T, uid types.UID) operations.Operation {
	t.Helper()
	o := setup(t)
	o.Volume, o.ClaimUID = volumes.VolumeName(uid), string(uid)
	return o
}

// withBatch returns the Job whose worker was given another batch.
func withBatch(t *testing.T, job *batchv1.Job, number int, ops ...operations.Operation) *batchv1.Job {
	t.Helper()
	data, err := operations.EncodeBatch(operations.Batch{Number: number, Operations: ops})
	if err != nil {
		t.Fatal(err)
	}
	job = job.DeepCopy()
	job.Annotations[wellknown.AnnotationBatch(number)] = string(data)
	return job
}

// TestClaimsOfAChange compares the claims that are enqueued after a change of an object.
func TestClaimsOfAChange(t *testing.T) {
	first := jobOf(t, operationOf(t, "a"), operationOf(t, "b"))
	second := withBatch(t, first, 2, operationOf(t, "c"))
	third := withBatch(t, second, 3, operationOf(t, "d"))
	finished := first.DeepCopy()
	finished.Status.Succeeded = 1
	edit := func(change func(*batchv1.Job)) *batchv1.Job {
		job := first.DeepCopy()
		change(job)
		return job
	}
	nameless := operationOf(t, "a")
	nameless.ClaimUID = ""
	for name, tt := range map[string]struct {
		before, after any
		want          []types.UID
	}{
		"a claim":                      {nil, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "x"}}, []types.UID{"x"}},
		"a volume":                     {nil, volumeFor("pv", "x"), []types.UID{"x"}},
		"a volume of another by now":   {volumeFor("pv", "x"), volumeFor("pv", "y"), []types.UID{"x", "y"}},
		"a volume that is gone":        {volumeFor("pv", "x"), nil, []types.UID{"x"}},
		"a new Job":                    {nil, first, []types.UID{"a", "b"}},
		"a Job that has ended":         {first, finished, []types.UID{"a", "b"}},
		"a Job that is gone":           {first, nil, []types.UID{"a", "b"}},
		"a worker's second batch":      {first, second, []types.UID{"c"}},
		"a worker's third batch":       {second, third, []types.UID{"d"}},
		"two batches at once":          {first, third, []types.UID{"c", "d"}},
		"a Job with several, new":      {nil, third, []types.UID{"a", "b", "c", "d"}},
		"a sweep Job":                  {nil, edit(func(j *batchv1.Job) { j.Name = "efs-sweep-fs-1-00001" }), nil},
		"a Job of another program":     {nil, edit(func(j *batchv1.Job) { j.Name = "backup" }), nil},
		"a Job that cannot be read":    {nil, edit(func(j *batchv1.Job) { j.Annotations[wellknown.AnnotationBatch(2)] = "{" }), nil},
		"an operation without a claim": {nil, jobOf(t, nameless, operationOf(t, "b")), []types.UID{"b"}},
		"a class that no claim has":    {nil, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "efs"}}, nil},
		"a pod":                        {nil, &corev1.Pod{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			checkEnqueued(t, nil, func(loop *Controller) { loop.objectChanged(tt.before, tt.after) }, tt.want)
		})
	}
	t.Run("a batch that was reported", func(t *testing.T) {
		checkEnqueued(t, nil, func(loop *Controller) { loop.BatchReported(third, 2) }, []types.UID{"c"})
	})
}

// checkEnqueued wants the keys that a leader with some objects in its caches enqueues, to decide about.
func checkEnqueued(t *testing.T, objects []any, change func(*Controller), want []types.UID) {
	t.Helper()
	loop := loopOf(t, record.NewFakeRecorder(10), fake.NewClientset())
	loop.gatherer.Targets = func() targets.Snapshot {
		return targets.Snapshot{FileSystems: usable().FileSystems, Gone: map[string]bool{"fs-gone": true}}
	}
	for _, object := range objects {
		addToCaches(t, loop, object)
	}
	synctest.Test(t, func(t *testing.T) {
		var decided []types.UID
		loop.decisions = recording(&decided)
		whileRunning(t, loop.decisions, func() { change(loop) })
		slices.Sort(decided)
		if !slices.Equal(decided, want) {
			t.Errorf("decided about %q, want %q", decided, want)
		}
	})
}

// whileRunning calls a function in a bubble of synctest while a queue runs, and returns when its keys are synced.
func whileRunning(t *testing.T, q *queue.Queue[types.UID], do func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := q.Run(ctx, 1, func() {}); err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	do()
	synctest.Wait()
	stop()
	running.Wait()
}

func recording(keys *[]types.UID) *queue.Queue[types.UID] {
	return queueTo(func(_ context.Context, uid types.UID) (time.Duration, error) {
		*keys = append(*keys, uid)
		return 0, nil
	})
}

// queueTo makes a queue that may run in a bubble of synctest, when it is made there: a queue made outside has its
// goroutines outside, which may not wake those in the bubble.
func queueTo(sync queue.SyncFunc[types.UID]) *queue.Queue[types.UID] {
	return queue.New(queue.Options{Name: "test", KeyName: "claim", FirstRetry: time.Second, Log: slog.New(slog.DiscardHandler)}, sync)
}

func addToCaches(t *testing.T, loop *Controller, object any) {
	t.Helper()
	informers := loop.gatherer.Caches
	var informer cache.SharedIndexInformer
	switch object.(type) {
	case *corev1.PersistentVolumeClaim:
		informer = informers.Claims
	case *corev1.PersistentVolume:
		informer = informers.Volumes
	case *batchv1.Job:
		informer = informers.Jobs
	case *storagev1.StorageClass:
		informer = informers.Classes
	}
	if err := informer.GetStore().Add(object); err != nil {
		t.Fatal(err)
	}
}

// unbound returns a claim that waits for us, of a class.
func unbound(uid types.UID, class string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: string(uid), UID: uid, Annotations: map[string]string{wellknown.AnnotationStorageProvisioner: wellknown.DefaultProvisioner}},
		Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: &class},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
}

// TestClassChangeIsAboutUnboundClaims of that class.
func TestClassChangeIsAboutUnboundClaims(t *testing.T) {
	bound := unbound("bound", "efs")
	bound.Spec.VolumeName = "pv"
	objects := []any{unbound("one", "efs"), unbound("other", "fast"), bound}
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "efs"}}
	checkEnqueued(t, objects, func(loop *Controller) { loop.objectChanged(nil, class) }, []types.UID{"one"})
}

// TestChangedFileSystemsAreAbout claims that wait, Jobs from which something follows, and volumes of file
// systems that are gone, or that are not settled.
func TestChangedFileSystemsAreAbout(t *testing.T) {
	on := func(name string, uid types.UID, id string, phase corev1.PersistentVolumePhase) *corev1.PersistentVolume {
		v := newVolume(t)
		v.Name, v.Spec.ClaimRef.UID, v.Status.Phase = name, uid, phase
		v.Annotations[wellknown.AnnotationFileSystemID] = id
		v.Annotations[wellknown.AnnotationClaimUID] = string(uid)
		return v
	}
	open, over := jobOf(t, operationOf(t, "open")), jobOf(t, operationOf(t, "over"))
	open.Finalizers, over.Name = []string{wellknown.FinalizerOutcome}, "efs-mount-fs-1-00002"
	for name, tt := range map[string]struct {
		objects []any
		want    []types.UID
	}{
		"nothing waits":                  {nil, nil},
		"claims of every class":          {[]any{unbound("one", "efs"), unbound("two", "fast")}, []types.UID{"one", "two"}},
		"a Job that is not used yet":     {[]any{open, over}, []types.UID{"open"}},
		"bound, its file system is gone": {[]any{on("a", "a", "fs-gone", corev1.VolumeBound), on("b", "b", "fs-1", corev1.VolumeBound)}, []types.UID{"a"}},
		"released on each":               {[]any{on("a", "a", "fs-1", corev1.VolumeReleased), on("b", "b", "fs-2", corev1.VolumeReleased)}, []types.UID{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			checkEnqueued(t, tt.objects, func(loop *Controller) { loop.TargetsChanged() }, tt.want)
		})
	}
}

// TestListedAccessPointsAreAboutTheirVolumes, also those that are bound: one may be gone, or back.
func TestListedAccessPointsAreAboutTheirVolumes(t *testing.T) {
	bound := newVolume(t)
	bound.Name, bound.Spec.ClaimRef.UID, bound.Status.Phase = "a", "a", corev1.VolumeBound
	bound.Annotations[wellknown.AnnotationClaimUID] = "a"
	bound.Annotations[wellknown.AnnotationAccessPointID] = "fsap-1"
	checkEnqueued(t, []any{bound}, func(loop *Controller) { loop.PointChanged("") }, []types.UID{"a"})
}

// TestPodThatEndsIsAboutItsJobsClaims, and no other change of a pod is.
func TestPodThatEndsIsAboutItsJobsClaims(t *testing.T) {
	job := jobOf(t, operationOf(t, "a"))
	job.UID = "job"
	inContainer := func(name string, state corev1.ContainerState) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodRunning
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: name, State: state}}
		}
	}
	terminated := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	phase := func(phase corev1.PodPhase) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Status.Phase = phase } }
	for name, tt := range map[string]struct {
		edits []func(*corev1.Pod)
		want  []types.UID
	}{
		"pending":                     {[]func(*corev1.Pod){phase(corev1.PodPending)}, nil},
		"running":                     {[]func(*corev1.Pod){inContainer(mountjobs.ContainerName, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})}, nil},
		"its container has ended":     {[]func(*corev1.Pod){inContainer(mountjobs.ContainerName, terminated)}, []types.UID{"a"}},
		"a mesh's container has":      {[]func(*corev1.Pod){inContainer("istio-proxy", terminated)}, nil},
		"succeeded":                   {[]func(*corev1.Pod){phase(corev1.PodSucceeded)}, []types.UID{"a"}},
		"failed":                      {[]func(*corev1.Pod){phase(corev1.PodFailed)}, []types.UID{"a"}},
		"without an owner":            {[]func(*corev1.Pod){phase(corev1.PodFailed), func(p *corev1.Pod) { p.OwnerReferences = nil }}, nil},
		"of another kind":             {[]func(*corev1.Pod){phase(corev1.PodFailed), func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "ReplicaSet" }}, nil},
		"of an earlier Job":           {[]func(*corev1.Pod){phase(corev1.PodFailed), func(p *corev1.Pod) { p.OwnerReferences[0].UID = "earlier" }}, nil},
		"of a Job that is not cached": {[]func(*corev1.Pod){phase(corev1.PodFailed), func(p *corev1.Pod) { p.OwnerReferences[0].Name = "unknown" }}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: job.Namespace, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
			}}
			for _, edit := range tt.edits {
				edit(pod)
			}
			checkEnqueued(t, []any{job}, func(loop *Controller) { loop.podChanged(nil, pod) }, tt.want)
		})
	}
}

// TestOnlyPlansWithChangesAreApplied: most events of a burst are about claims of which nothing is to be written, and
// those that are refused stand in no volume's way.
func TestOnlyPlansWithChangesAreApplied(t *testing.T) {
	waits := unbound("waits", "efs")
	waits.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	waits.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	refused, elsewhere := waits.DeepCopy(), waits.DeepCopy()
	refused.Name, refused.UID = "refused", "refused"
	refused.Spec.Selector = metav1.SetAsLabelSelector(map[string]string{wellknown.LabelVolumeName: "Bad Name"})
	elsewhere.Name, elsewhere.UID, elsewhere.Spec.StorageClassName = "elsewhere", "elsewhere", new("unknown")
	for name, tt := range map[string]struct {
		claim *corev1.PersistentVolumeClaim
		want  string // the queue
	}{
		"a claim that waits":                       {waits, ""},
		"a claim that is refused":                  {refused, "verdicts"},
		"a claim that has the file systems listed": {elsewhere, "volumes"},
		"a claim that is deleted":                  {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			loop := loopOf(t, record.NewFakeRecorder(10), fake.NewClientset())
			loop.gatherer.Targets = func() targets.Snapshot {
				return targets.Snapshot{Known: true, FileSystems: usable().FileSystems}
			}
			addToCaches(t, loop, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "efs"}, Provisioner: wellknown.DefaultProvisioner})
			addToCaches(t, loop, &storagev1.StorageClass{
				ObjectMeta: metav1.ObjectMeta{Name: "unknown"}, Provisioner: wellknown.DefaultProvisioner, Parameters: map[string]string{"default_file_system_id": "fs-0000000000000000f"},
			})
			uid := types.UID("gone")
			if tt.claim != nil {
				uid = tt.claim.UID
				addToCaches(t, loop, tt.claim)
			}
			synctest.Test(t, func(t *testing.T) {
				var forVolumes, forVerdicts []types.UID
				loop.queue, loop.verdicts = recording(&forVolumes), recording(&forVerdicts)
				whileRunning(t, loop.queue, func() {
					whileRunning(t, loop.verdicts, func() {
						if _, err := loop.decide(t.Context(), uid); err != nil {
							t.Error(err)
						}
					})
				})
				got := strings.Repeat("volumes", len(forVolumes)) + strings.Repeat("verdicts", len(forVerdicts))
				if got != tt.want {
					t.Errorf("got %q, want %q", got, tt.want)
				}
			})
		})
	}
}

func TestNextSync(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, tt := range map[string]struct {
		plan decide.Plan
		want time.Duration
	}{
		"waits for an event":        {decide.Plan{}, 0},
		"unsettled":                 {decide.Plan{Unsettled: true}, time.Minute},
		"a Job runs":                {decide.Plan{RunningUntil: now.Add(time.Hour)}, time.Hour + time.Second},
		"a Job runs, and unsettled": {decide.Plan{RunningUntil: now.Add(5 * time.Second), Unsettled: true}, 6 * time.Second},
		"a Job is past its end":     {decide.Plan{RunningUntil: now.Add(-time.Hour)}, time.Second},
	} {
		if got := untilNext(now, tt.plan); got != tt.want {
			t.Errorf("%s: again after %s, want %s", name, got, tt.want)
		}
	}
}
