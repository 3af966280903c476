package table

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// serverCaches has pods and Warnings about them. The uid of a pod is its name.
func serverCaches(t *testing.T, pods []*corev1.Pod, warnings ...*corev1.Event) *caches.Caches {
	t.Helper()
	c, err := caches.New(kubefake.NewClientset(), nil, namespace)
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods {
		if err := c.Pods.GetStore().Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	for _, warning := range warnings {
		if err := c.Warnings.GetStore().Add(warning); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// podOf is a pod of the server nfs that was created a number of minutes after noon, and is ready or not.
func podOf(name string, minutes int, ready corev1.ConditionStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID(name), Labels: map[string]string{wellknown.LabelServer: "nfs"},
			CreationTimestamp: metav1.Time{Time: noon.Add(time.Duration(minutes) * time.Minute)},
		},
		Spec:   corev1.PodSpec{NodeName: "n1"},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, Message: "containers with unready status: [nfsserver]"}}},
	}
}

func warningAbout(pod, message string, minutes int) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: message, CreationTimestamp: metav1.Time{Time: noon.Add(time.Duration(minutes) * time.Minute)}},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: pod, UID: types.UID(pod)},
		Message:        message,
	}
}

// selecting makes a Service lead to the pods of a server.
func selecting(id string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.Selector = map[string]string{wellknown.LabelServer: id} }
}

// planOf plans with one server, and what its pod says.
func planOf(service *corev1.Service, c *caches.Caches, edits ...func(*fixture)) plans {
	return given(tableOf(nil), append(edits, func(f *fixture) {
		f.state = f.withServers(readServers([]*corev1.Service{service}))
		f.pods = readServerPods(c, f.servers)
		f.sizes = readSizes(f.sizes, f.pods)
	})...).plan(options())
}

func noticeOf(all []notice, reason string) (notice, bool) {
	if i := slices.IndexFunc(all, func(n notice) bool { return n.Reason == reason }); i >= 0 {
		return all[i], true
	}
	return notice{}, false
}

func TestServerWithoutAReadyPodIsNotReady(t *testing.T) {
	service := serviceOf("efs-nfs", "nfs", authority(t), selecting("nfs"))
	starting, unscheduled, ending := podOf("b", 1, corev1.ConditionFalse), podOf("b", 1, corev1.ConditionFalse), podOf("b", 1, corev1.ConditionTrue)
	unscheduled.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes are available"}}
	ending.DeletionTimestamp = &metav1.Time{Time: noon}
	const full = "Readiness probe failed: [-] disk: it is full:\n3 MiB are free"
	for name, tt := range map[string]struct {
		pods     []*corev1.Pod
		warnings []*corev1.Event
		want     string // a part of the message; "" while it is ready
	}{
		"ready":                  {[]*corev1.Pod{podOf("b", 1, corev1.ConditionTrue)}, []*corev1.Event{warningAbout("b", "of its start", 1)}, ""},
		"ready beside an older":  {[]*corev1.Pod{podOf("a", 0, corev1.ConditionFalse), podOf("b", 1, corev1.ConditionTrue)}, nil, ""},
		"ready beside a younger": {[]*corev1.Pod{podOf("a", 0, corev1.ConditionTrue), podOf("b", 1, corev1.ConditionFalse)}, nil, ""},
		"no pod":                 {nil, nil, "Service efs-nfs leads to no pod: kubectl -n efs-stunnel get statefulsets,pods -l efs-stunnel.gnuthought.com/server=nfs"},
		"killed":                 {[]*corev1.Pod{ending}, nil, "the pod b of its server is not ready: it ends"},
		"starting":               {[]*corev1.Pod{podOf("a", 0, corev1.ConditionFalse), starting}, nil, "the pod b of its server is not ready: containers with unready status: [nfsserver]"},
		"on no node":             {[]*corev1.Pod{unscheduled}, nil, "0/3 nodes are available"},
		"full": {
			[]*corev1.Pod{starting}, []*corev1.Event{warningAbout("b", full, 2), warningAbout("b", "earlier", 1), warningAbout("a", "of another pod", 3)},
			"is not ready: Readiness probe failed: [-] disk: it is full: 3 MiB are free: kubectl -n efs-stunnel describe pod b",
		},
	} {
		p := planOf(service, serverCaches(t, tt.pods, tt.warnings...))
		n, found := noticeOf(p.notices, wellknown.EventServerNotReady)
		if found != (tt.want != "") || !strings.Contains(n.Message, tt.want) {
			t.Errorf("%s: got %q, want %q in it", name, n.Message, tt.want)
		}
		if found && (n.TypeOf() != status.Usable || n.Subject.Name != "nfs" || n.about != service) {
			t.Errorf("%s: got %+v", name, n)
		}
		if c := p.snapshot.FileSystems["nfs"]; c.Unusable != "" || c.Port == 0 || p.table.Targets["nfs"].Port == 0 || len(p.decision.roots) != 1 {
			t.Errorf("%s: got %+v, want that clients can wait for it", name, c)
		}
	}
}

// TestServerOutsideOfTheClusterHasNoPods: its Service has no selector, and only agents see it.
func TestServerOutsideOfTheClusterHasNoPods(t *testing.T) {
	for name, edit := range map[string]func(*corev1.Service){"no selector": func(*corev1.Service) {}, "another one": selecting("nfs-2")} {
		p := planOf(serviceOf("efs-nfs", "nfs", authority(t), edit), serverCaches(t, nil))
		if n, found := noticeOf(p.notices, wellknown.EventServerNotReady); found {
			t.Errorf("%s: got %+v", name, n)
		}
	}
}

// TestOtherNumbersOfAServerAreNoNews: its probe fails again each 5 s, with the bytes that are free then.
func TestOtherNumbersOfAServerAreNoNews(t *testing.T) {
	service, c := serviceOf("efs-nfs", "nfs", authority(t), selecting("nfs")), status.Set{}
	update := func(message string) status.Changes {
		p := planOf(service, serverCaches(t, []*corev1.Pod{podOf("a", 0, corev1.ConditionFalse)}, warningAbout("a", message, 1)))
		n, _ := noticeOf(p.notices, wellknown.EventServerNotReady)
		return c.Update(noon, []status.Condition{n.Condition})
	}
	for _, tt := range []struct {
		message string
		news    bool
	}{{"3 of 100 MiB are free", true}, {"2 of 100 MiB are free", false}, {"the certificate has expired", true}} {
		if got := update(tt.message); got.IsZero() == tt.news {
			t.Errorf("%s: got %+v", tt.message, got)
		}
	}
}

// TestPodsOfServersEnqueueTheTable, and events about them, but no others.
func TestPodsOfServersEnqueueTheTable(t *testing.T) {
	other := podOf("other", 0, corev1.ConditionFalse)
	other.Labels = nil
	server := podOf("server", 0, corev1.ConditionFalse)
	c := &Controller{caches: serverCaches(t, []*corev1.Pod{other, server})}
	for pod, want := range map[*corev1.Pod]bool{other: false, server: true} {
		if isServerPod(nil, pod) != want || isServerPod(pod, nil) != want || c.isOfServerPod(nil, warningAbout(pod.Name, "x", 1)) != want {
			t.Errorf("pod %s: want %t", pod.Name, want)
		}
	}
	if c.isOfServerPod(nil, warningAbout("unknown", "x", 1)) || c.isOfServerPod(warningAbout("server", "x", 1), nil) {
		t.Error("events about unknown pods, or that have expired, enqueue the table")
	}
}

// saying is a pod whose init container has said something of quotas.
func saying(said string, ready corev1.ConditionStatus) *corev1.Pod {
	pod := podOf("a", 0, ready)
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{
		{Name: "another", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "of others"}}},
		{Name: wellknown.QuotasContainer, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: said}}},
	}
	return pod
}

// TestServerSaysWhetherSizesAreEnforced: as its pod has it, and as before while there is none that says it.
func TestServerSaysWhetherSizesAreEnforced(t *testing.T) {
	service := serviceOf("efs-nfs", "nfs", authority(t), selecting("nfs"))
	const noXFS = "the file system\nis not xfs"
	for name, tt := range map[string]struct {
		before map[string]string
		pods   []*corev1.Pod
		want   string // what is known afterwards; "unknown"
	}{
		"enforced":                      {nil, []*corev1.Pod{saying(wellknown.QuotasEnforced, corev1.ConditionTrue)}, wellknown.QuotasEnforced},
		"not enforced":                  {nil, []*corev1.Pod{saying(noXFS, corev1.ConditionTrue)}, "the file system is not xfs"},
		"not ready":                     {nil, []*corev1.Pod{saying(noXFS, corev1.ConditionFalse)}, "the file system is not xfs"},
		"mended":                        {map[string]string{"nfs": "x"}, []*corev1.Pod{saying(wellknown.QuotasEnforced, corev1.ConditionTrue)}, wellknown.QuotasEnforced},
		"without quotas":                {nil, []*corev1.Pod{podOf("a", 0, corev1.ConditionTrue)}, ""},
		"without quotas any longer":     {map[string]string{"nfs": "x"}, []*corev1.Pod{podOf("a", 0, corev1.ConditionTrue)}, ""},
		"moving":                        {map[string]string{"nfs": "x"}, nil, "x"},
		"starting":                      {map[string]string{"nfs": "x"}, []*corev1.Pod{podOf("a", 0, corev1.ConditionFalse)}, "x"},
		"starting for the first time":   {nil, []*corev1.Pod{podOf("a", 0, corev1.ConditionFalse)}, "unknown"},
		"another server was there once": {map[string]string{"nfs-2": "x"}, nil, "unknown"},
	} {
		p := planOf(service, serverCaches(t, tt.pods), func(f *fixture) { f.sizes = tt.before })
		got, known := p.sizes["nfs"]
		if !known {
			got = "unknown"
		}
		if got != tt.want || len(p.sizes) > 1 {
			t.Errorf("%s: got %q of %q, want %q", name, got, p.sizes, tt.want)
		}
		n, found := noticeOf(p.notices, wellknown.EventSizesNotEnforced)
		if want := !slices.Contains([]string{"", "unknown", wellknown.QuotasEnforced}, tt.want); found != want {
			t.Errorf("%s: got %+v", name, n)
		}
		if found && (n.TypeOf() != status.SizesEnforced || n.Message != "the sizes of volumes are not enforced: "+tt.want || n.about != service || n.Subject.Name != "nfs") {
			t.Errorf("%s: got %+v", name, n)
		}
	}
}

// TestSizesAreShownOfServersThatSayIt, and stay as another leader has written them until the server says it again.
func TestSizesAreShownOfServersThatSayIt(t *testing.T) {
	c, client := showing(t)
	one := map[string]server{"nfs": {}}
	both := map[string]ports.Target{"nfs": target(20490), "fs-2": target(20491)}
	show := func(servers map[string]server, sizes map[string]string) {
		c.shown.Store(&plan{table: *tableOf(both), servers: servers, memory: memory{sizes: sizes}})
	}
	said := func(id string) string {
		t.Helper()
		syncAll(t, c)
		if found := meta.FindStatusCondition(fileSystemOf(t, client, id).Conditions, status.SizesEnforced); found != nil {
			return string(found.Status) + " " + found.Reason
		}
		return ""
	}
	expect := func(id, want string) {
		t.Helper()
		if got := said(id); got != want {
			t.Errorf("%s: got %q, want %q", id, got, want)
		}
	}
	show(one, nil)
	expect("nfs", "")
	show(one, map[string]string{"nfs": wellknown.QuotasEnforced})
	expect("nfs", "True AsExpected")
	expect("fs-2", "")
	show(one, map[string]string{"nfs": "no"})
	c.tableEvents.report(t.Context(), nil, []notice{server{id: "nfs", service: &corev1.Service{}}.condition(wellknown.EventSizesNotEnforced, "no")})
	expect("nfs", "False SizesNotEnforced")
	c.objects, c.tableEvents = objectsMemory{}, reporter{Options: c.options} // of another leader
	show(one, nil)
	expect("nfs", "False SizesNotEnforced")
	client.ClearActions()
	expect("nfs", "False SizesNotEnforced")
	for _, action := range client.Actions() {
		if action.GetVerb() != "get" {
			t.Errorf("written without a change: %v", action)
		}
	}
	show(one, map[string]string{"nfs": ""})
	expect("nfs", "")
	show(one, map[string]string{"nfs": wellknown.QuotasEnforced})
	expect("nfs", "True AsExpected")
	show(nil, nil)
	expect("nfs", "")
}
