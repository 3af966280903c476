package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/clock"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/manager/observe"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// wrongClocks are by how much the manager's clock is ahead of the apiserver's at each sync.
func wrongClocks() map[string]func(sync int) time.Duration {
	const day = 24 * time.Hour
	clocks := map[string]func(int) time.Duration{
		"growing":   func(sync int) time.Duration { return time.Duration(sync) * 20 * time.Minute },
		"shrinking": func(sync int) time.Duration { return -time.Duration(sync) * 20 * time.Minute },
		"jumping":   func(sync int) time.Duration { return time.Duration(sync%5-2) * time.Hour },
	}
	for _, d := range []time.Duration{16 * time.Minute, 40 * time.Minute, time.Hour, 3 * day} {
		clocks[d.String()+" ahead"] = func(int) time.Duration { return d }
		clocks[d.String()+" behind"] = func(int) time.Duration { return -d }
	}
	return clocks
}

// tooMany mount Jobs end a test early.
const tooMany = 30

// clockWorld is one claim that waits for its directory, and a manager whose clock is wrong. The
// apiserver and the nodes have the right time, that of the bubble.
type clockWorld struct {
	*testing.T
	loop    *Controller
	caches  *caches.Caches
	client  *fake.Clientset
	clock   *clock.Clock
	syncs   int
	created int
	// play gives the pod of a Job, as its node reports it.
	play func(job *batchv1.Job) *corev1.Pod
}

func newClockWorld(t *testing.T, ahead func(sync int) time.Duration) *clockWorld {
	t.Helper()
	w := &clockWorld{T: t, client: newClient(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "shop"}})}
	w.client.PrependReactor("create", "jobs", w.admit)
	var err error
	if w.caches, err = caches.New(w.client, nil, wellknown.Namespace); err != nil {
		t.Fatal(err)
	}
	seen, err := observe.New(decide.Settings{Provisioner: wellknown.DefaultProvisioner, Cluster: "cluster", Backoff: time.Minute}, w.caches,
		func() targets.Snapshot {
			return targets.Snapshot{Known: true, Listed: true, FileSystems: map[string]volumes.Candidate{fileSystem: {ID: fileSystem, Port: 20490}}}
		})
	if err != nil {
		t.Fatal(err)
	}
	w.clock = clock.New("test", func() time.Time { return time.Now().Add(ahead(w.syncs)) }, slog.New(slog.DiscardHandler))
	seen.Now = w.clock.Now
	if w.loop, err = New(w.client, seen, Options{
		Jobs:  mountjobs.Settings{Namespace: wellknown.Namespace, Image: "efs-stunnel"},
		Batch: wellknown.DefaultMountJobBatch, Events: &record.FakeRecorder{}, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
		TaskEnded: func(string, string, []status.Condition) {}, Blocked: func(string, map[string]decide.Verdict) {},
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.end)
	w.addObjects()
	return w
}

// newClient is a fake client that keeps no managed fields: those take most of the time of a write,
// and nothing here reads them.
func newClient(t testing.TB, objects ...runtime.Object) *fake.Clientset {
	t.Helper()
	tracker, client := clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder()), &fake.Clientset{}
	for _, object := range objects {
		if err := tracker.Add(object); err != nil {
			t.Fatal(err)
		}
	}
	client.AddReactor("*", "*", clienttesting.ObjectReaction(tracker))
	return client
}

// end stops the goroutines of the loop's queue, which never ran.
func (w *clockWorld) end() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := w.loop.Run(ctx); err != nil {
		w.Error(err)
	}
}

// admit has the apiserver create a Job.
func (w *clockWorld) admit(action clienttesting.Action) (bool, runtime.Object, error) {
	create, ok := action.(clienttesting.CreateAction)
	if !ok {
		return false, nil, fmt.Errorf("action %T", action)
	}
	job, ok := create.GetObject().(*batchv1.Job)
	if !ok {
		return false, nil, fmt.Errorf("object %T", create.GetObject())
	}
	w.created++
	job.UID, job.CreationTimestamp = types.UID(job.Name), metav1.NewTime(time.Now().Truncate(time.Second))
	return false, nil, nil
}

func (w *clockWorld) add(informer interface{ Add(any) error }, object any) {
	w.Helper()
	if err := informer.Add(object); err != nil {
		w.Fatal(err)
	}
}

const claimOfClocks = types.UID("22222222-0000-0000-0000-000000000000")

func (w *clockWorld) addObjects() {
	class, now := "efs", metav1.NewTime(time.Now().Truncate(time.Second))
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "cart", UID: claimOfClocks, CreationTimestamp: now,
			Annotations: map[string]string{wellknown.AnnotationStorageProvisioner: wellknown.DefaultProvisioner},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
	volume, root := volumes.RootObjects(fileSystem, 20490, wellknown.Namespace)
	root.UID, root.CreationTimestamp, root.Status.Phase = "root", now, corev1.ClaimBound
	volume.UID, volume.CreationTimestamp, volume.Status.Phase = "root volume", now, corev1.VolumeBound
	volume.Spec.ClaimRef.UID = root.UID
	w.add(w.caches.Claims.GetStore(), claim)
	w.add(w.caches.Claims.GetStore(), root)
	w.add(w.caches.Volumes.GetStore(), volume)
	w.add(w.caches.Classes.GetStore(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: class, UID: "class"}, Provisioner: wellknown.DefaultProvisioner,
	})
}

// sync lets some time pass, and has the loop sync the file system once.
func (w *clockWorld) sync(after time.Duration) {
	w.Helper()
	<-time.After(after) // of the bubble's clock
	w.syncs++
	w.client.ClearActions()
	w.loop.gatherer.Decide(claimOfClocks) // as the claims loop does, at least once a minute
	if _, err := w.loop.sync(w.Context(), fileSystem); err != nil {
		w.Fatal(err)
	}
	reads := []string{"get", "list", "watch"}
	if slices.ContainsFunc(w.client.Actions(), func(a clienttesting.Action) bool { return !slices.Contains(reads, a.GetVerb()) }) {
		w.follow()
	}
}

// follow is what informers do after a write, which is rare.
func (w *clockWorld) follow() {
	w.Helper()
	jobs, err := w.client.BatchV1().Jobs(wellknown.Namespace).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	for i := range jobs.Items {
		job := &jobs.Items[i]
		w.add(w.caches.Jobs.GetStore(), job)
		w.add(w.caches.Pods.GetStore(), w.play(job))
	}
}

// measure has the manager read the time of a response of the apiserver.
func (w *clockWorld) measure() {
	w.Helper()
	request, err := http.NewRequestWithContext(w.Context(), http.MethodGet, "https://apiserver/", http.NoBody)
	if err != nil {
		w.Fatal(err)
	}
	_, _ = w.clock.Wrap(apiserver{}).RoundTrip(request) //nolint:bodyclose // there is none
}

// apiserver answers with its time.
type apiserver struct{}

func (apiserver) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Date": {time.Now().UTC().Format(http.TimeFormat)}}}, nil
}

// runningPod is one that has begun and has not ended.
func runningPod(job *batchv1.Job) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace, Name: job.Name + "-abcde", UID: "pod of " + job.UID, CreationTimestamp: job.CreationTimestamp,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Spec:   corev1.PodSpec{NodeName: "a"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// failingPod is one that has reported a failure a second after the Job was created.
func failingPod(job *batchv1.Job) *corev1.Pod {
	pod := runningPod(job)
	report := operations.Report{Results: []operations.Result{{State: operations.Failed, Reason: operations.NoSpace, Message: "it is full"}}}
	pod.Status.Phase = corev1.PodFailed
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: mountjobs.ContainerName,
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: 1, FinishedAt: metav1.NewTime(job.CreationTimestamp.Add(time.Second)), Message: string(report.Encode()),
		}},
	}}
	return pod
}

// TestWrongClockMakesNoJobs: a running mount Job keeps the file system, whatever the manager's clock
// says, even if the apiserver never says what time it is.
func TestWrongClockMakesNoJobs(t *testing.T) {
	for name, ahead := range wrongClocks() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newClockWorld(t, ahead)
				w.play = runningPod
				for range 30 {
					w.sync(100 * time.Millisecond)
				}
				if w.created != 1 {
					t.Errorf("30 syncs in 3 seconds created %d mount Jobs, want 1", w.created)
				}
			})
		})
	}
}

// TestWrongClockRetriesAsAlways: once the apiserver has answered, the number of attempts is that of a
// manager whose clock is right.
func TestWrongClockRetriesAsAlways(t *testing.T) {
	attempts := func(t *testing.T, ahead func(int) time.Duration, play func(*batchv1.Job) *corev1.Pod) (created int) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			w := newClockWorld(t, ahead)
			w.play = play
			for range 90 { // an hour
				w.measure()
				w.sync(40 * time.Second)
				if w.created > tooMany {
					break
				}
			}
			created = w.created
		})
		return created
	}
	for kind, play := range map[string]func(*batchv1.Job) *corev1.Pod{"failing": failingPod, "hanging": runningPod} {
		right := attempts(t, func(int) time.Duration { return 0 }, play)
		if right < 3 || right > 10 {
			t.Fatalf("a %s Job is repeated %d times in an hour: the test tests nothing", kind, right)
		}
		for name, ahead := range wrongClocks() {
			t.Run(kind+", "+name, func(t *testing.T) {
				if got := attempts(t, ahead, play); got != right {
					t.Errorf("%d mount Jobs in an hour, want %d as with a clock that is right", got, right)
				}
			})
		}
	}
}

// TestOneJobAMinuteWithoutTheApiserversTime: where the offset cannot be measured, a clock that is wrong
// makes one mount Job a minute at most.
func TestOneJobAMinuteWithoutTheApiserversTime(t *testing.T) {
	for kind, play := range map[string]func(*batchv1.Job) *corev1.Pod{"failing": failingPod, "hanging": runningPod} {
		for name, ahead := range wrongClocks() {
			t.Run(kind+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newClockWorld(t, ahead)
					w.play = play
					for range 40 { // ten minutes
						w.sync(15 * time.Second)
						if w.created > tooMany {
							break
						}
					}
					if w.created < 1 || w.created > 11 { // the lost first attempt is repeated at once
						t.Errorf("%d mount Jobs in ten minutes, want one a minute at most", w.created)
					}
				})
			})
		}
	}
}
