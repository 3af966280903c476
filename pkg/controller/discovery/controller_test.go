package discovery

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
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/controller/caches"
	"gnuthought.com/efs-stunnel/pkg/efs/efstest"
	"gnuthought.com/efs-stunnel/pkg/logging/loggingtest"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// cluster is a loop at work on a fake cluster, inside a bubble.
type cluster struct {
	*Controller
	t       *testing.T
	client  *fake.Clientset
	events  *record.FakeRecorder
	log     loggingtest.Buffer
	changes atomic.Int32
	updates int
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

// told are the events since the last call.
func (c *cluster) told() (all []string) {
	for len(c.events.Events) > 0 {
		all = append(all, <-c.events.Events)
	}
	return all
}

func (c *cluster) tells(part string) {
	c.t.Helper()
	if got := c.told(); !slices.ContainsFunc(got, func(e string) bool { return strings.Contains(e, part) }) {
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

// writes are what was written, events aside.
func (c *cluster) writes() (all []string) {
	for _, action := range c.client.Actions() {
		if verb := action.GetVerb(); verb != "get" && verb != "list" && verb != "watch" {
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
		c.tells("Normal FileSystemFound fs-1 has port 20490")
		if s := c.Snapshot(); !s.Known || !s.Listed || s.Port("fs-1") != 20490 || c.changes.Load() != 1 {
			t.Errorf("snapshot %+v after %d changes", s, c.changes.Load())
		}
		pass(time.Hour)
		if got := c.writes(); len(got) > 0 || c.changes.Load() != 1 || len(c.told()) > 0 {
			t.Errorf("an unchanged world made %d changes, wrote %q", c.changes.Load(), got)
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

func TestAHangingAPIKeepsNoRootVolumeFromBeingHealed(t *testing.T) {
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
		c.tells("Warning DiscoveryFailed")
	})
}

func TestAnUnreadableTableIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := tableMap(tableOf(map[string]ports.Target{"fs-1": target(20490)}))
		c := start(t, efstest.New(fileSystem("fs-1", "a")), good)
		was := c.Snapshot()
		c.writes()
		c.told()
		broken := c.configMap()
		broken.Data[wellknown.TargetsKey] += "\t:"
		c.update(broken)
		synctest.Wait() // or the volume may be seen first
		c.volume(claimed("v", "fs-1", 20499))
		pass(10 * time.Minute)
		if got := c.writes(); len(got) != 2 { // the test's own
			t.Errorf("writes %q", got)
		}
		if got := c.told(); len(got) != 1 || !strings.Contains(got[0], "Warning TableUnreadable ConfigMap efs-stunnel cannot be read") {
			t.Errorf("events %q", got)
		}
		if got := strings.Count(c.log.String(), "level=ERROR"); got != 1 {
			t.Errorf("%d errors in the log, want 1:\n%s", got, c.log.String())
		}
		if diff := cmp.Diff(was, c.Snapshot()); diff != "" {
			t.Errorf("snapshot changed (-was +is):\n%s", diff)
		}
		mended := c.configMap()
		mended.Data[wellknown.TargetsKey] = good.Data[wellknown.TargetsKey]
		c.update(mended)
		pass(time.Second)
		c.tells("Warning PortCorrected changed from port 20499 to 20490")
	})
}

func (c *cluster) update(object *corev1.ConfigMap) {
	c.t.Helper()
	c.updates++
	object.ResourceVersion = strconv.Itoa(1000 + c.updates) // the fake leaves this to its users
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

func TestALostRaceIsLookedAtAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := efstest.New(fileSystem("fs-1", "a"))
		c := start(t, api)
		var lost atomic.Int32
		c.client.PrependReactor("update", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			return lost.Add(1) < 3, nil, apierrors.NewConflict(corev1.Resource("configmaps"), wellknown.TargetsConfigMap, errBoom)
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

// The volume is bound to a claim that no cache shows yet: healing by the caches would unbind it.
func TestHealingReadsLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, claim := boundRoot("fs-1", 20490)
		c := start(t, nil, tableMap(tableOf(map[string]ports.Target{"fs-1": target(20490)})), v, claim)
		c.client.ClearActions()
		pair := volumes.RootPair{FileSystemID: "fs-1", Port: 20490, Namespace: namespace, Volume: v}
		if len(pair.Changes()) == 0 {
			t.Fatal("the cached pair needs nothing")
		}
		if err := c.exec.heal(t.Context(), rootWork{pair: pair}); err != nil {
			t.Error(err)
		}
		if got := c.writes(); len(got) > 0 {
			t.Errorf("writes %q", got)
		}
	})
}

func TestFinishedJobsLetAClaimGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, claim := boundRoot("fs-1", 20490)
		claim.Status.Phase = corev1.ClaimLost
		c := start(t, nil, tableMap(tableOf(map[string]ports.Target{"fs-1": target(20490)})), v, claim,
			job(1, batchv1.JobComplete), job(2, batchv1.JobFailed, wellknown.FinalizerOutcome), job(3, batchv1.JobSuspended))
		jobs, err := c.client.BatchV1().Jobs(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, j := range jobs.Items {
			left = append(left, j.Name)
		}
		if diff := cmp.Diff([]string{"efs-mount-fs-1-00002", "efs-mount-fs-1-00003"}, left); diff != "" {
			t.Errorf("jobs (-want +got):\n%s", diff)
		}
		// The claim is another one now, and the volume waits for it.
		made, err := c.client.CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), claim.Name, metav1.GetOptions{})
		if err != nil || made.Status.Phase == corev1.ClaimLost {
			t.Errorf("claim %+v, %v", made, err)
		}
		mended, err := c.client.CoreV1().PersistentVolumes().Get(t.Context(), v.Name, metav1.GetOptions{})
		if err != nil || mended.Spec.ClaimRef == nil || mended.Spec.ClaimRef.UID != "" || mended.Spec.ClaimRef.Name != claim.Name {
			t.Errorf("volume %+v, %v", mended.Spec.ClaimRef, err)
		}
		c.tells("Warning RootVolumeRepaired delete claim: it has lost its volume")
	})
}

func job(number int, condition batchv1.JobConditionType, finalizers ...string) *batchv1.Job {
	name := mountjobs.Name{Kind: mountjobs.Mount, FileSystemID: "fs-1", Number: number}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name.String(), Labels: mountjobs.Labels(name.Kind, name.FileSystemID), Finalizers: finalizers,
		},
		Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: condition, Status: corev1.ConditionTrue}}},
	}
}

// From the last listing to the last object: nobody has to do anything.
func TestAFileSystemAndAllThatIsOfItGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := efstest.New(fileSystem("fs-1", "a"), fileSystem("fs-2", "a"))
		c := start(t, api)
		api.Remove("fs-1")
		pass(2 * time.Minute)
		c.wantPorts(map[string]int{"fs-1": 20490, "fs-2": 20491})
		c.tells("Warning FileSystemMissing fs-1")
		pass(3 * time.Minute)
		c.wantPorts(map[string]int{"fs-2": 20491})
		told := c.told()
		if !strings.Contains(strings.Join(told, "\n"), "Normal FileSystemGone fs-1") || strings.Contains(strings.Join(told, "\n"), "Repaired") {
			t.Errorf("events %q", told)
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

func TestFailuresAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := efstest.New(fileSystem("fs-1", "a"))
		c := start(t, api)
		c.told()
		for i := range 20 {
			api.FailList(apiTrouble(i, "AccessDeniedException", "no"))
			pass(time.Minute)
		}
		if got := c.told(); len(got) != 1 || !strings.Contains(got[0], "AccessDeniedException: no") {
			t.Errorf("events %q", got)
		}
		c.wantPorts(map[string]int{"fs-1": 20490})
	})
}
