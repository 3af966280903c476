package table

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/test/support/efstest"
	"gnuthought.com/efs-stunnel/test/support/loggingtest"
)

// cluster is a loop at work on a fake cluster, inside a bubble.
type cluster struct {
	*Controller
	t       *testing.T
	client  *fake.Clientset
	events  *record.FakeRecorder
	log     loggingtest.Buffer
	changes atomic.Int32
	stop    func()
}

func start(t *testing.T, api API, objects ...runtime.Object) *cluster {
	t.Helper()
	return startWith(t, api, func(*Options, *fake.Clientset) {}, objects...)
}

// startWith starts after a change of options or apiserver.
func startWith(t *testing.T, api API, change func(*Options, *fake.Clientset), objects ...runtime.Object) *cluster {
	t.Helper()
	c := &cluster{t: t, client: fake.NewClientset(objects...), events: record.NewFakeRecorder(10_000)}
	store, err := caches.New(c.client, nil, namespace)
	if err != nil {
		t.Fatal(err)
	}
	c.client.PrependReactor("*", "configmaps", newVersion())
	o := options()
	change(&o, c.client)
	o.Log, o.Events, o.Metrics = slog.New(slog.NewTextHandler(&c.log, nil)), c.events, prometheus.NewRegistry()
	if c.Controller, err = New(c.client, store, api, o); err != nil {
		t.Fatal(err)
	}
	c.OnChange(func() { c.changes.Add(1) })
	ctx, end := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { store.Run(ctx) })
	running.Go(func() {
		if err := store.Await(ctx); err != nil {
			return // the test has ended
		}
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	c.stop = sync.OnceFunc(func() {
		end()
		running.Wait()
	})
	t.Cleanup(c.stop)
	pass(time.Second)
	return c
}

// newVersion gives each write a resourceVersion of its own, which the fake leaves to its users.
func newVersion() clienttesting.ReactionFunc {
	var writes atomic.Int64
	return func(action clienttesting.Action) (bool, runtime.Object, error) {
		// An UpdateAction has the same methods as a CreateAction.
		if write, ok := action.(clienttesting.CreateAction); ok {
			if object, ok := write.GetObject().(metav1.Object); ok {
				object.SetResourceVersion(strconv.FormatInt(1000+writes.Add(1), 10))
			}
		}
		return false, nil, nil
	}
}

// newEvents are those since the last call.
func (c *cluster) newEvents() (all []string) {
	for len(c.events.Events) > 0 {
		all = append(all, <-c.events.Events)
	}
	return all
}

func (c *cluster) wantEvent(part string) {
	c.t.Helper()
	if got := c.newEvents(); !slices.ContainsFunc(got, func(e string) bool { return strings.Contains(e, part) }) {
		c.t.Errorf("no event has %q: %q", part, got)
	}
}

func (c *cluster) configMap() *corev1.ConfigMap {
	c.t.Helper()
	object, err := c.client.CoreV1().ConfigMaps(namespace).Get(c.t.Context(), wellknown.TargetsConfigMap, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return object
}

func (c *cluster) ports() map[string]int {
	c.t.Helper()
	table, err := ports.Decode([]byte(c.configMap().Data[wellknown.TargetsKey]))
	if err != nil {
		c.t.Fatal(err)
	}
	all := map[string]int{}
	for id, target := range table.Targets {
		all[id] = target.Port
	}
	return all
}

func (c *cluster) wantPorts(want map[string]int) {
	c.t.Helper()
	if diff := cmp.Diff(want, c.ports()); diff != "" {
		c.t.Errorf("ports (-want +got):\n%s", diff)
	}
}

// isOfView reports whether a view is created or updated, which have the same methods.
func isOfView(action clienttesting.Action) bool {
	write, ok := action.(clienttesting.CreateAction)
	if !ok {
		return false
	}
	object, ok := write.GetObject().(*corev1.ConfigMap)
	return ok && object.Name == wellknown.ViewConfigMap
}

// writes are what was written, events and views aside.
func (c *cluster) writes() (all []string) {
	for _, action := range c.client.Actions() {
		if verb := action.GetVerb(); verb != "get" && verb != "list" && verb != "watch" && !isOfView(action) {
			all = append(all, verb+" "+action.GetResource().Resource)
		}
	}
	c.client.ClearActions()
	return all
}

func TestAFirstStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, efstest.New(fileSystem("fs-1", "a")))
		c.wantPorts(map[string]int{"fs-1": 20490})
		want := []string{"create configmaps", "create persistentvolumes", "create persistentvolumeclaims"}
		if diff := cmp.Diff(want, c.writes()); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
		c.wantEvent("Normal FileSystemFound fs-1 has port 20490")
		if s := c.Snapshot(); !s.Known || !s.Listed || s.Port("fs-1") != 20490 || c.changes.Load() != 1 {
			t.Errorf("snapshot %+v after %d changes", s, c.changes.Load())
		}
		pass(time.Hour)
		if got := c.writes(); len(got) > 0 || c.changes.Load() != 1 || len(c.newEvents()) > 0 {
			t.Errorf("an unchanged cluster made %d changes, wrote %q", c.changes.Load(), got)
		}
	})
}

func TestPinnedTargetsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pin := configMap(wellknown.PinnedConfigMap, map[string]string{
			wellknown.TargetsKey: "efs_stunnel_targets: {server: {mount_target_ip_by_zone: {a: 10.0.0.9}}}",
		})
		c := start(t, nil, pin)
		c.Kick()
		c.wantPorts(map[string]int{"server": 20490})
		if s := c.Snapshot(); !s.Known || s.Listed || s.FileSystems["server"].Unusable != "" {
			t.Errorf("snapshot %+v", s)
		}
	})
}

func TestALostTableIsRebuiltFromALiveList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, efstest.New(fileSystem("fs-1", "a")), claimed("v", "fs-1", 20495))
		c.wantPorts(map[string]int{"fs-1": 20495})
		c.client.ClearActions()
		if err := c.client.CoreV1().ConfigMaps(namespace).Delete(t.Context(), wellknown.TargetsConfigMap, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		c.wantPorts(map[string]int{"fs-1": 20495})
		listed := slices.ContainsFunc(c.client.Actions(), func(a clienttesting.Action) bool { return a.Matches("list", "persistentvolumes") })
		if !listed {
			t.Error("no live list of volumes")
		}
	})
}

func TestAHangingAPIDelaysNoRootVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, hanging{}, tableMap(tableOf(map[string]ports.Target{"fs-1": target(20490)})))
		if s := c.Snapshot(); s.Known || s.Port("fs-1") != 20490 {
			t.Errorf("snapshot %+v", s)
		}
		if _, err := c.client.CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), "efs-stunnel-fs-1", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
		pass(pollTimeout)
		if !c.Snapshot().Known {
			t.Error("a poll that failed leaves nothing known")
		}
		c.wantEvent("Warning DiscoveryFailed")
	})
}

func TestAnUnreadableTableIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := tableMap(tableOf(map[string]ports.Target{"fs-1": target(20490)}))
		c := start(t, efstest.New(fileSystem("fs-1", "a")), good)
		was := c.Snapshot()
		c.writes()
		c.newEvents()
		broken := c.configMap()
		broken.Data[wellknown.TargetsKey] += "\t:"
		c.update(broken)
		synctest.Wait() // or the volume may be seen first
		c.volume(claimed("v", "fs-1", 20499))
		pass(10 * time.Minute)
		if got := c.writes(); len(got) != 2 { // the test's own
			t.Errorf("writes %q", got)
		}
		if got := c.newEvents(); len(got) != 1 || !strings.Contains(got[0], "Warning TableUnreadable ConfigMap efs-stunnel cannot be read") {
			t.Errorf("events %q", got)
		}
		if got := strings.Count(c.log.String(), "problem has begun"); got != 1 {
			t.Errorf("%d problems in the log, want 1:\n%s", got, c.log.String())
		}
		if diff := cmp.Diff(was, c.Snapshot()); diff != "" {
			t.Errorf("snapshot changed (-was +is):\n%s", diff)
		}
		mended := c.configMap()
		mended.Data[wellknown.TargetsKey] = good.Data[wellknown.TargetsKey]
		c.update(mended)
		pass(time.Second)
		c.wantEvent("Warning PortCorrected changed from port 20499 to 20490")
	})
}

func (c *cluster) update(object *corev1.ConfigMap) {
	c.t.Helper()
	if _, err := c.client.CoreV1().ConfigMaps(namespace).Update(c.t.Context(), object, metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) volume(v *corev1.PersistentVolume) {
	c.t.Helper()
	if _, err := c.client.CoreV1().PersistentVolumes().Create(c.t.Context(), v, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func TestALostRaceIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := efstest.New(fileSystem("fs-1", "a"))
		c := start(t, api)
		var lost atomic.Int32
		c.client.PrependReactor("update", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
			return !isOfView(action) && lost.Add(1) < 3, nil, apierrors.NewConflict(corev1.Resource("configmaps"), wellknown.TargetsConfigMap, errBoom)
		})
		api.Put(fileSystem("fs-2", "a"))
		c.Kick()
		pass(20 * time.Second)
		c.wantPorts(map[string]int{"fs-1": 20490, "fs-2": 20491})
		if strings.Contains(c.log.String(), "level=ERROR") || lost.Load() != 3 {
			t.Errorf("%d tries:\n%s", lost.Load(), c.log.String())
		}
	})
}

// From the last listing to the last object.
func TestAGoneFileSystemLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := efstest.New(fileSystem("fs-1", "a"), fileSystem("fs-2", "a"))
		c := start(t, api)
		api.Remove("fs-1")
		pass(2 * time.Minute)
		c.wantPorts(map[string]int{"fs-1": 20490, "fs-2": 20491})
		c.wantEvent("Warning FileSystemMissing fs-1")
		pass(3 * time.Minute)
		c.wantPorts(map[string]int{"fs-2": 20491})
		events := c.newEvents()
		if !strings.Contains(strings.Join(events, "\n"), "Normal FileSystemGone fs-1") || strings.Contains(strings.Join(events, "\n"), "Repaired") {
			t.Errorf("events %q", events)
		}
		left, err := c.client.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
		if err != nil || len(left.Items) != 1 || left.Items[0].Name != "efs-stunnel-fs-2" {
			t.Errorf("volumes left: %+v, %v", left, err)
		}
		if got := api.Calls().Exists; got != 1 {
			t.Errorf("%d questions, want 1", got)
		}
	})
}

func TestFailuresAreReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := efstest.New(fileSystem("fs-1", "a"))
		c := start(t, api)
		c.newEvents()
		for i := range 20 {
			api.FailList(awsError(i, "AccessDeniedException", "no"))
			pass(time.Minute)
		}
		if got := c.newEvents(); len(got) != 1 || !strings.Contains(got[0], "AccessDeniedException: no") {
			t.Errorf("events %q", got)
		}
		c.wantPorts(map[string]int{"fs-1": 20490})
	})
}
