package usage

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/manager/observe"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

const (
	namespace  = "efs-stunnel"
	team       = "team"
	fileSystem = "fs-0123456789abcdef0"
)

var now = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

// loop is a controller whose caches the test fills.
type loop struct {
	*Controller
	t        *testing.T
	client   *fake.Clientset
	events   *record.FakeRecorder
	registry *prometheus.Registry
}

func newLoop(t *testing.T) *loop {
	t.Helper()
	l := &loop{t: t, client: fake.NewClientset(), events: record.NewFakeRecorder(100), registry: prometheus.NewRegistry()}
	c, err := caches.New(l.client, nil, namespace)
	if err != nil {
		t.Fatal(err)
	}
	g, err := observe.New(decide.Settings{Provisioner: wellknown.DefaultProvisioner}, c, func() targets.Snapshot {
		return targets.Snapshot{Known: true, FileSystems: map[string]volumes.Candidate{fileSystem: {Port: 20490}}}
	})
	if err != nil {
		t.Fatal(err)
	}
	g.Now = func() time.Time { return now }
	l.Controller, err = New(l.client, g, Options{
		Events: l.events, Metrics: l.registry, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// bind adds a claim of 1 GiB and its volume to the caches, and the claim to the apiserver.
func (l *loop) bind(name, path string, edits ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	l.t.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name, UID: types.UID("uid-" + name)}}
	claim.Spec.VolumeName = "pv-" + name
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	for _, edit := range edits {
		edit(claim)
	}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name, Annotations: map[string]string{
		wellknown.AnnotationProvisionedBy: wellknown.DefaultProvisioner, wellknown.AnnotationFileSystemID: fileSystem, wellknown.AnnotationPath: path,
	}}}
	volume.Spec.NFS = &corev1.NFSVolumeSource{Server: wellknown.LoopbackAddress, Path: path}
	volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: team, Name: name, UID: types.UID("uid-" + name)}
	l.add(l.gatherer.Caches.Claims, claim)
	l.add(l.gatherer.Caches.Volumes, volume)
	if err := l.client.Tracker().Add(claim.DeepCopy()); err != nil {
		l.t.Fatal(err)
	}
	return claim
}

// add adds an object as the caches have it.
func (l *loop) add(informer cache.SharedIndexInformer, object any) {
	l.t.Helper()
	if claim, ok := object.(*corev1.PersistentVolumeClaim); ok {
		claim.SelfLink = claim.Annotations[wellknown.AnnotationUsage] //nolint:staticcheck // as caches does it
	}
	if err := informer.GetStore().Add(object); err != nil {
		l.t.Fatal(err)
	}
}

// count has a survey count a directory, and the claim be synced. The cache gets what was written.
func (l *loop) count(claim *corev1.PersistentVolumeClaim, usage operations.Usage) (writes int, events []string) {
	l.t.Helper()
	l.measurements.add(fileSystem, []operations.Usage{usage}, now)
	l.client.ClearActions()
	if _, err := l.sync(l.t.Context(), cache.MetaObjectToName(claim)); err != nil {
		l.t.Fatal(err)
	}
	writes = len(l.client.Actions())
	live, err := l.client.CoreV1().PersistentVolumeClaims(team).Get(l.t.Context(), claim.Name, metav1.GetOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	l.add(l.gatherer.Caches.Claims, live)
	for len(l.events.Events) > 0 {
		events = append(events, <-l.events.Events)
	}
	return writes, events
}

func TestCrossingOfARequestIsReportedOnce(t *testing.T) {
	l := newLoop(t)
	claim := l.bind("data", "/team/data")
	const gi = 1 << 30
	steps := []struct {
		bytes  int64
		writes int
		event  bool
	}{{gi, 1, false}, {gi, 0, false}, {gi + 1, 1, true}, {gi + 2, 0, false}, {2 * gi, 1, false}, {gi / 2, 1, false}, {3 * gi, 1, true}}
	for i, step := range steps {
		writes, events := l.count(claim, operations.Usage{Path: "/team/data", Bytes: step.bytes, Files: 7})
		if writes != step.writes || (len(events) == 1) != step.event || len(events) > 1 {
			t.Errorf("step %d, %d bytes: %d writes, events %q", i, step.bytes, writes, events)
		}
		if step.event && (!strings.Contains(events[0], "Warning VolumeOverRequest") || !strings.Contains(events[0], fmt.Sprint(step.bytes)) || !strings.Contains(events[0], "1Gi")) {
			t.Errorf("event %q", events[0])
		}
	}
	next := newLoop(t) // a new leader, of which no survey has counted anything
	recorded := func(c *corev1.PersistentVolumeClaim) {
		c.Annotations = l.gatherer.Caches.ClaimNamed(team, "data").Annotations
	}
	claim = next.bind("data", "/team/data", recorded)
	if writes, events := next.count(claim, operations.Usage{Path: "/team/other", Bytes: 1}); writes > 0 || len(events) > 0 {
		t.Errorf("a new leader: %d writes, events %q", writes, events)
	}
	claim = next.bind("grown", "/team/grown", recorded, func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("4Gi")
	})
	if writes, events := next.count(claim, operations.Usage{Path: "/team/other", Bytes: 1}); writes != 1 || len(events) > 0 {
		t.Errorf("a claim that has grown: %d writes, events %q", writes, events)
	}
}

// Whatever a survey has counted, only claims whose volumes have a path are written, and nothing but their annotation.
func TestSurveyDecidesAboutNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoop(t)
		claim := l.bind("data", "/team/data")
		l.bind("other", "/team/other")
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- l.Run(ctx) }()
		synctest.Wait()
		l.Counted(fileSystem, []operations.Usage{{Path: "/team/data", Bytes: 4096, Files: 2}, {Path: "/team/unknown", Bytes: 4096, Files: 2}}, now)
		<-time.After(time.Minute)
		if l.Busy() {
			t.Error("something was not recorded")
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		actions := l.client.Actions()
		if len(actions) != 1 || actions[0].GetVerb() != "patch" || actions[0].GetNamespace() != team {
			t.Errorf("got %v", actions)
		}
		live, err := l.client.CoreV1().PersistentVolumeClaims(team).Get(t.Context(), claim.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if usage, ok := mountjobs.ParseUsage(live.Annotations[wellknown.AnnotationUsage]); !ok || usage.Bytes != 4096 || usage.Files != 2 || usage.At != now {
			t.Errorf("got %+v", usage)
		}
		if _, ok := l.measurements.of(fileSystem, "/team/unknown"); ok {
			t.Error("a path without a volume is remembered")
		}
	})
}

func TestOnlyTheLeaderHasMetrics(t *testing.T) {
	l := newLoop(t)
	l.bind("counted", "/team/counted")
	l.bind("recorded", "/team/recorded", func(c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{wellknown.AnnotationUsage: mountjobs.UsageRecord{Bytes: 7, Files: 1, At: now}.Encode()}
	})
	l.bind("forged", "/team/forged", func(c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{wellknown.AnnotationUsage: mountjobs.UsageRecord{At: now.AddDate(100, 0, 0)}.Encode()}
	})
	l.bind("unknown", "/team/unknown")
	l.measurements.add(fileSystem, []operations.Usage{{Path: "/team/counted", Bytes: 4096, Files: 2}, {Path: "/team/forged", Bytes: 8192, Files: 3}}, now)
	if n, err := testutil.GatherAndCount(l.registry); n != 0 || err != nil {
		t.Errorf("a standby has %d series, error %v", n, err)
	}
	ch := make(chan prometheus.Metric, 100)
	collector{l.Controller}.collectAll(ch)
	if len(ch) != 9 {
		t.Errorf("%d series, want 9", len(ch))
	}
	want := `
# HELP efs_stunnel_volume_used_bytes Bytes that the file server has allocated for a claim's directory, as the last survey counted them. Leader only, absent before the first.
# TYPE efs_stunnel_volume_used_bytes gauge
efs_stunnel_volume_used_bytes{namespace="team",persistentvolumeclaim="counted"} 4096
efs_stunnel_volume_used_bytes{namespace="team",persistentvolumeclaim="forged"} 8192
efs_stunnel_volume_used_bytes{namespace="team",persistentvolumeclaim="recorded"} 7
`
	if err := testutil.CollectAndCompare(always{collector{l.Controller}}, strings.NewReader(want), "efs_stunnel_volume_used_bytes"); err != nil {
		t.Error(err)
	}
}

// always collects as the leader does.
type always struct{ collector }

func (a always) Collect(metrics chan<- prometheus.Metric) { a.collectAll(metrics) }

// TestSurveyIsBusyUntilClaimsAreRecorded: a client that has asked for the survey reads the claims then.
func TestSurveyIsBusyUntilClaimsAreRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoop(t)
		l.writes = rate.NewLimiter(rate.Every(time.Minute), 1)
		l.bind("data", "/team/data")
		l.bind("other", "/team/other")
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- l.Run(ctx) }()
		synctest.Wait()
		l.Counted(fileSystem, []operations.Usage{{Path: "/team/data", Bytes: 4096}, {Path: "/team/other", Bytes: 4096}}, now)
		<-time.After(time.Second)
		written, busy := len(l.client.Actions()), l.Busy()
		<-time.After(time.Minute)
		if written != 1 || !busy || l.Busy() {
			t.Errorf("%d written after a second, busy %v, and %v after a minute", written, busy, l.Busy())
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
