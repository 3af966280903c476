package jobs

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/background"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

func wantsClone(volume string, since, due time.Time) decide.Pending {
	w := wants(volume, since, due)
	w.Operation.Kind, w.Operation.Source = operations.Clone, operations.Source{SourceClaim: "source", SourcePath: "/source"}
	return w
}

// cloned is a clone Job that was created two minutes ago.
func cloned(number int, change ...func(*mountJob)) mountJob {
	m := mounted(number, change...)
	m.outcome.Name.Kind = mountjobs.Clone
	m.job.Name = m.outcome.Name.String()
	m.pods = []*corev1.Pod{runningPod(m.job)}
	m.outcome.Operations = []operations.Operation{wantsClone("v9", now, now).Operation}
	return m
}

func clonesCreated(p plan) (names []string) {
	for _, next := range changesOf[createJob](p) {
		if next.kind == mountjobs.Clone {
			names = append(names, next.due[0].Operation.Volume)
		}
	}
	return names
}

func TestDecideClones(t *testing.T) {
	ready, later := wantsClone("c1", ago(time.Minute), time.Time{}), wantsClone("c2", ago(time.Minute), now.Add(time.Minute))
	four := []mountJob{cloned(1, runs), cloned(2, runs), cloned(3, runs), cloned(4, runs)}
	for name, c := range map[string]struct {
		state    state
		clones   []mountJob
		created  string
		released int
		ended    int
		progress int
		queued   string // part of what is reported
	}{
		"the first":                    {state: stateWith(nil, ready), created: "c1"},
		"beside a mount Job":           {state: stateWith([]mountJob{mounted(1, runs)}, ready), created: "c1"},
		"one at a time":                {state: stateWith(nil, ready, wantsClone("c3", now, time.Time{})), created: "c1"},
		"that is due later":            {state: stateWith(nil, later)},
		"beside others":                {state: stateWith(nil, ready), clones: four[:3], created: "c1", progress: 3},
		"when too many run":            {state: stateWith(nil, ready), clones: four, progress: 4, queued: "when one of the 4 that run on file system"},
		"its outcome is used":          {state: stateWith(nil), clones: []mountJob{cloned(1)}, released: 1},
		"its outcome is not used":      {state: stateWith(nil), clones: []mountJob{cloned(1, unused)}},
		"its claim is deleted":         {state: stateWith(nil), clones: []mountJob{cloned(1, runs, func(m *mountJob) { m.abandoned = true })}, ended: 1},
		"its progress was reported":    {state: stateWith(nil), clones: []mountJob{cloned(1, runs, func(m *mountJob) { m.progressDue = now.Add(time.Second) })}},
		"its file system is gone":      {state: func() state { s := stateWith(nil); s.Gone = true; return s }(), clones: []mountJob{cloned(1, runs)}, ended: 1},
		"the root volume is not ready": {state: func() state { s := stateWith(nil, ready); s.NotReady = "no"; return s }(), queued: "no mount Job can begin: no"},
	} {
		t.Run(name, func(t *testing.T) {
			c.state.clones = c.clones
			p := planFor(c.state)
			if got := strings.Join(clonesCreated(p), " "); got != c.created {
				t.Errorf("creates clones for %q, want %q", got, c.created)
			}
			if len(due(p))+len(changesOf[giveBatch](p)) > 0 {
				t.Errorf("a mount Job carries a clone: %+v", p)
			}
			if got := len(changesOf[background.Release](p)); got != c.released {
				t.Errorf("%d are released", got)
			}
			if got := len(changesOf[background.End](p)); got != c.ended {
				t.Errorf("%d are ended", got)
			}
			if got := len(changesOf[reportProgress](p)); got != c.progress {
				t.Errorf("the progress of %d is reported", got)
			}
			var said string
			for _, r := range changesOf[report](p) {
				said += r.message
			}
			if !strings.Contains(said, c.queued) || c.queued == "" && said != "" {
				t.Errorf("reported %q, want %q", said, c.queued)
			}
		})
	}
}

// TestNamespacesTakeTurnsWithClones: the letters are the namespaces of what runs.
func TestNamespacesTakeTurnsWithClones(t *testing.T) {
	of := func(namespace, volume string, since, due time.Time) decide.Pending {
		w := wantsClone(volume, since, due)
		w.Operation.Namespace = namespace
		return w
	}
	a, b, later := of("a", "a1", ago(time.Hour), time.Time{}), of("b", "b1", ago(time.Minute), time.Time{}), of("b", "b2", ago(time.Minute), now.Add(time.Minute))
	for name, c := range map[string]struct {
		running string
		pending []decide.Pending
		created string
	}{
		"nothing runs":                      {"", []decide.Pending{a, b}, "a1"},
		"one runs":                          {"a", []decide.Pending{a, b}, "b1"},
		"one of each":                       {"ab", []decide.Pending{a, b}, "a1"},
		"no other waits":                    {"aaa", []decide.Pending{a}, "a1"},
		"another waits for its next try":    {"aaa", []decide.Pending{a, later}, ""},
		"and the others run fewer":          {"aa", []decide.Pending{a, later}, "a1"},
		"another waits, all places in use":  {"aaab", []decide.Pending{a, b}, ""},
		"one of another has come to an end": {"aaa", []decide.Pending{a, b}, "b1"},
	} {
		s := stateWith(nil, c.pending...)
		for i, namespace := range c.running {
			m := cloned(i+1, runs)
			m.outcome.Operations[0].Namespace = string(namespace)
			s.clones = append(s.clones, m)
		}
		if got := strings.Join(clonesCreated(planFor(s)), " "); got != c.created {
			t.Errorf("%s: creates a clone for %q, want %q", name, got, c.created)
		}
	}
}

func TestClonesDoNotHideSetups(t *testing.T) {
	p := planFor(stateWith(nil, wants("v1", ago(time.Minute), time.Time{}), wantsClone("c1", ago(time.Hour), time.Time{})))
	if got := due(p); len(got) != 1 || got[0] != "v1" {
		t.Errorf("the mount Job has %v", got)
	}
	if got := clonesCreated(p); len(got) != 1 {
		t.Errorf("clones for %v", got)
	}
}

// A running mount Job is nothing that a clone waits for.
func TestCloneIsNotReportedBehindAMountJob(t *testing.T) {
	running := mounted(1, runs)
	running.pods = []*corev1.Pod{{Status: corev1.PodStatus{Phase: corev1.PodRunning}}}
	for _, r := range changesOf[report](planFor(stateWith([]mountJob{running}, wantsClone("c1", ago(time.Hour), now.Add(time.Minute))))) {
		t.Errorf("reported %q", r.message)
	}
}

func TestMakesSaysWhatAJobDoes(t *testing.T) {
	o := wantsClone("c1", now, now).Operation
	o.Path = "/copy"
	if got := makes(wellknown.CloneJobPrefix+"1", o); got != "Job efs-clone-1 copies claim source to directory /copy" {
		t.Error(got)
	}
}

// TestProgressIsTheLastThatAJobHasSaid about all files, in an event on its claim.
func TestProgressIsTheLastThatAJobHasSaid(t *testing.T) {
	long := strings.Repeat("x", 128<<10)
	for name, c := range map[string]struct {
		code  int
		log   string
		want  string // part of the event, or "" for none
		fails bool
	}{
		"some lines":          {http.StatusOK, "starting\n" + progressLine(t, 1, 5) + progressLine(t, 3, 7) + "level=INFO msg=done\n", "3 of the 7 files found so far, 30 bytes", false},
		"nothing yet":         {http.StatusOK, "starting\n", "", false},
		"a line that is long": {http.StatusOK, progressLine(t, 1, 5) + long, "1 of the 5 files", false},
		"not started":         {http.StatusBadRequest, "", "", false},
		"its pod is gone":     {http.StatusNotFound, "", "", false},
		"it cannot be read":   {http.StatusForbidden, "", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			loop, recorder := reporter(t)
			loop.logs = &background.Logs{Namespace: "efs-stunnel", Client: serving(t, "/api/v1/namespaces/efs-stunnel/pods/copier/log", c.code, c.log)}
			m := cloned(1, runs)
			m.outcome.Operations[0].ClaimUID = string(queuedClaim)
			if err := loop.reportProgress(t.Context(), m.job.Name, "copier", m.outcome.Operations); (err != nil) != c.fails {
				t.Errorf("got %v", err)
			}
			got := strings.Join(written(recorder), "\n")
			if !strings.Contains(got, c.want) || (c.want == "") != (got == "") {
				t.Errorf("event %q, want %q", got, c.want)
			}
		})
	}
}

// TestLogOfAHangingNodeDelaysNoFileSystem: the kubelet does not answer.
func TestLogOfAHangingNodeDelaysNoFileSystem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoop(t)
		l.client.PrependReactor("get", "pods/log", func(clienttesting.Action) (bool, runtime.Object, error) {
			<-time.After(background.ProgressTimeout)
			return true, nil, errors.New("the kubelet does not answer")
		})
		o := wantsClone("v1", now, now).Operation
		o.ClaimUID, o.Cluster = string(claimNumber(1)), "cluster"
		add(t, l.gatherer.Caches.Claims.GetStore(), waitingClaim(1))
		job, err := mountjobs.Build(mountjobs.Spec{Kind: mountjobs.Clone, Settings: l.options.Jobs, FileSystemID: fileSystem, Number: 1, Operations: []operations.Operation{o}})
		if err != nil {
			t.Fatal(err)
		}
		job.UID, job.CreationTimestamp = "clone", metav1.NewTime(time.Now().Add(-time.Minute))
		add(t, l.gatherer.Caches.Jobs.GetStore(), job)
		add(t, l.gatherer.Caches.Pods.GetStore(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: job.Namespace, Name: "copier", Labels: job.Spec.Template.Labels,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
			},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
				{Name: mountjobs.ContainerName, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
			}},
		})
		start := time.Now()
		again, err := l.sync(t.Context(), fileSystem)
		if err != nil || again != background.FirstProgress || time.Since(start) > 0 {
			t.Errorf("the file system was held for %s: again after %s, %v", time.Since(start), again, err)
		}
		if l.reads.Wait(); time.Since(start) != background.ProgressTimeout {
			t.Errorf("the log was read for %s", time.Since(start))
		}
	})
}

func progressLine(t *testing.T, done, found int64) string {
	t.Helper()
	data, err := json.Marshal(operations.CloneProgress{Files: done, Found: found, Bytes: 10 * done})
	if err != nil {
		t.Fatal(err)
	}
	return string(data) + "\n"
}

// serving is a client of an apiserver that answers one path.
func serving(t *testing.T, path string, code int, body string) kubernetes.Interface {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path {
			t.Errorf("request of %s", r.URL.Path)
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return client
}
