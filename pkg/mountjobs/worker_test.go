package mountjobs_test

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// TestWorkerThatWaitsHasItsLeader, and the token that proves which pod asks; one that does not wait has none.
func TestWorkerThatWaitsHasItsLeader(t *testing.T) {
	leader := mountjobs.Leader{Address: "10.0.0.1:8443", Key: "00ff"}
	for name, tt := range map[string]struct {
		linger time.Duration
		leader mountjobs.Leader
		waits  bool
	}{
		"it waits":                {time.Minute, leader, true},
		"it does not wait":        {0, leader, false},
		"there is no leader":      {time.Minute, mountjobs.Leader{}, false},
		"it would wait backwards": {-time.Minute, leader, false},
	} {
		t.Run(name, func(t *testing.T) {
			spec := mountjobs.Spec{Settings: settings(), FileSystemID: fileSystem, Number: 1, Operations: many(1), Leader: tt.leader}
			spec.Linger = tt.linger
			job, err := mountjobs.Build(spec)
			if err != nil {
				t.Fatal(err)
			}
			pod := job.Spec.Template.Spec
			var folder string
			for _, mount := range pod.Containers[0].VolumeMounts {
				for _, volume := range pod.Volumes {
					if volume.Name == mount.Name && volume.Projected != nil && mount.ReadOnly {
						folder = mount.MountPath
						token := volume.Projected.Sources[0].ServiceAccountToken
						if token.Audience != wellknown.WorkerAudience || token.Path != "token" {
							t.Errorf("the token is %+v", token)
						}
					}
				}
			}
			want := []string{"--leader=10.0.0.1:8443", "--leader-key=00ff", "--leader-token=" + folder + "/token", "--linger=1m0s"}
			got := slices.DeleteFunc(slices.Clone(pod.Containers[0].Args), func(argument string) bool {
				return !strings.HasPrefix(argument, "--leader") && !strings.HasPrefix(argument, "--linger")
			})
			if !tt.waits {
				want = nil
			}
			if !slices.Equal(got, want) || (folder != "") != tt.waits {
				t.Errorf("arguments %q and a token in %q, want %q", got, folder, want)
			}
		})
	}
}

// TestBlamesNode: what one node alone can cause has the next try on another one.
func TestBlamesNode(t *testing.T) {
	report := func(reason string) func(*corev1.Pod) {
		return ended(1, "Error", `{"operations":[-1],"results":[{"state":"failed","reason":"`+reason+`"}]}`)
	}
	for name, tt := range map[string]struct {
		pod  func(*corev1.Pod)
		now  time.Duration
		want bool
	}{
		"it runs":                       {running, 0, false},
		"everything is done":            {ended(0, "Completed", `{"operations":[0]}`), 0, false},
		"it died":                       {ended(137, "OOMKilled", ""), 0, true},
		"it hangs":                      {running, time.Hour, true},
		"it hangs before it has a node": {func(p *corev1.Pod) { running(p); p.Spec.NodeName = "" }, time.Hour, false},
		"an operation was refused":      {report("Nested"), 0, false},
		"an I/O error":                  {report("IOError"), 0, true},
		"a mount that is none":          {report("NotNFS"), 0, true},
		"the wrong file system":         {report("WrongFileSystem"), 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			job := newJob(t, many(1))
			got, err := mountjobs.Read(job, []*corev1.Pod{newPod(job, tt.pod)}, created.Add(tt.now))
			if err != nil || got.BlamesNode() != tt.want {
				t.Errorf("%s on %q blames its node: %t, error %v", got.State, got.Node, got.BlamesNode(), err)
			}
		})
	}
}

func TestAvoidsNodes(t *testing.T) {
	for name, tt := range map[string]struct {
		avoid []string
		edit  func(*batchv1.Job)
		want  bool
	}{
		"none":                {nil, nil, false},
		"one":                 {[]string{"n1"}, nil, true},
		"one without a name":  {[]string{""}, nil, false},
		"edited, no affinity": {[]string{"n1"}, func(j *batchv1.Job) { j.Spec.Template.Spec.Affinity = nil }, false},
	} {
		job, err := mountjobs.Build(mountjobs.Spec{Settings: settings(), FileSystemID: fileSystem, Number: 1, Operations: many(1), AvoidNodes: tt.avoid})
		if err != nil {
			t.Fatal(err)
		}
		if tt.edit != nil {
			tt.edit(job)
		}
		if got := mountjobs.AvoidsNodes(job); got != tt.want {
			t.Errorf("%s: avoids nodes is %t", name, got)
		}
	}
}

func TestFindsNoNode(t *testing.T) {
	scheduled := func(status corev1.ConditionStatus, node string) *corev1.Pod {
		pod := agent(node, false)
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: status})
		return pod
	}
	for name, tt := range map[string]struct {
		pods []*corev1.Pod
		want bool
	}{
		"no pod yet":                     {nil, false},
		"not looked at yet":              {[]*corev1.Pod{agent("", false)}, false},
		"no node":                        {[]*corev1.Pod{scheduled(corev1.ConditionFalse, "")}, true},
		"a node since":                   {[]*corev1.Pod{scheduled(corev1.ConditionFalse, "n1")}, false},
		"a node":                         {[]*corev1.Pod{scheduled(corev1.ConditionTrue, "n1")}, false},
		"the scheduler is not certain":   {[]*corev1.Pod{scheduled(corev1.ConditionUnknown, "")}, false},
		"one of two pods finds no node":  {[]*corev1.Pod{scheduled(corev1.ConditionTrue, "n1"), scheduled(corev1.ConditionFalse, "")}, true},
		"none of two pods finds no node": {[]*corev1.Pod{scheduled(corev1.ConditionTrue, "n1"), agent("", true)}, false},
	} {
		if got := mountjobs.FindsNoNode(tt.pods); got != tt.want {
			t.Errorf("%s: finds no node is %t", name, got)
		}
	}
}

func TestCannotStart(t *testing.T) {
	root := func(phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Phase: phase}}
	}
	pod := func(node string, phase corev1.PodPhase) []*corev1.Pod {
		return []*corev1.Pod{{Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase}}}
	}
	beside := pod("n1", corev1.PodPending)
	beside[0].Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "mesh"}, {Name: mountjobs.ContainerName, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
	}
	for name, tt := range map[string]struct {
		root *corev1.PersistentVolumeClaim
		pods []*corev1.Pod
		want bool
	}{
		"on a node, and the claim is lost":     {root(corev1.ClaimLost), pod("n1", corev1.PodPending), true},
		"on no node, and needs none so far":    {root(corev1.ClaimLost), pod("", corev1.PodPending), false},
		"it runs, and its mount stays":         {root(corev1.ClaimLost), pod("n1", corev1.PodRunning), false},
		"it runs beside one that does not":     {root(corev1.ClaimLost), beside, false},
		"it has ended":                         {root(corev1.ClaimLost), pod("n1", corev1.PodSucceeded), false},
		"no pod yet":                           {root(corev1.ClaimLost), nil, false},
		"its claim is Bound":                   {root(corev1.ClaimBound), pod("n1", corev1.PodPending), false},
		"there is no claim that it could keep": {nil, pod("n1", corev1.PodPending), false},
	} {
		if got := mountjobs.CannotStart(tt.root, tt.pods); got != tt.want {
			t.Errorf("%s: cannot start is %t", name, got)
		}
	}
}

func TestAgentThatLeavesIsNoOtherNode(t *testing.T) {
	leaving := agent("n2", true)
	leaving.DeletionTimestamp = &metav1.Time{Time: created}
	if got := mountjobs.NodesToAvoid([]string{"n1"}, []*corev1.Pod{leaving}); got != nil {
		t.Errorf("avoids %q although no other agent stays", got)
	}
}

// TestConditionsThatAreNotTrueSayNothing: a Job controller writes them before, and takes them back.
func TestConditionsThatAreNotTrueSayNothing(t *testing.T) {
	for _, kind := range []batchv1.JobConditionType{
		batchv1.JobComplete, batchv1.JobFailed, batchv1.JobFailureTarget, batchv1.JobSuccessCriteriaMet, batchv1.JobSuspended,
	} {
		for _, status := range []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionUnknown} {
			job := newJob(t, many(1), condition(kind, "", ""))
			job.Status.Conditions[0].Status = status
			got, err := mountjobs.Read(job, nil, created)
			if err != nil || got.State != mountjobs.Running || mountjobs.IsOver(job) {
				t.Errorf("%s is %s, and the Job is %s, error %v", kind, status, got.State, err)
			}
		}
	}
}

func TestIsOver(t *testing.T) {
	for kind, want := range map[batchv1.JobConditionType]bool{
		batchv1.JobComplete: true, batchv1.JobFailed: true, batchv1.JobFailureTarget: false, batchv1.JobSuccessCriteriaMet: false, batchv1.JobSuspended: false,
	} {
		if got := mountjobs.IsOver(newJob(t, many(1), condition(kind, "", ""))); got != want {
			t.Errorf("a Job that is %s is over: %t", kind, got)
		}
	}
}

// TestEventsAreMatchedByName where they have no uid, as those of other programs do.
func TestEventsAreMatchedByName(t *testing.T) {
	for name, tt := range map[string]struct {
		uid, object string
		want        mountjobs.Reason
	}{
		"of its name":                    {"", "own", mountjobs.QuotaExceeded},
		"of another name":                {"", "other", ""},
		"of its name, of an earlier Job": {"earlier", "own", ""},
		"of its uid":                     {"job-uid", "other", mountjobs.QuotaExceeded},
	} {
		job := newJob(t, many(1))
		about := event("", "FailedCreate", "exceeded quota: small", 0)
		about.InvolvedObject.UID = map[string]corev1.ObjectReference{"earlier": {UID: "earlier"}, "job-uid": {UID: job.UID}}[tt.uid].UID
		about.InvolvedObject.Name = map[string]string{"own": job.Name, "other": "other"}[tt.object]
		if reason, _ := mountjobs.Diagnose(job, nil, events(about)); reason != tt.want {
			t.Errorf("%s: got %q, want %q", name, reason, tt.want)
		}
	}
}

// TestRunsUntil says when a Job that runs has to be read again: at its deadline, or when the grace of its
// pod is over.
func TestRunsUntil(t *testing.T) {
	const deadline = 15*time.Minute + 30*time.Second
	target := condition(batchv1.JobFailureTarget, "DeadlineExceeded", "")
	none := func(*batchv1.Job) {}
	for name, tt := range map[string]struct {
		job  func(*batchv1.Job)
		pod  func(*corev1.Pod)
		want time.Duration
	}{
		"no pod":                             {none, nil, deadline},
		"it runs":                            {none, running, deadline},
		"it started late":                    {started(-time.Minute), running, deadline},
		"being deleted, and fails":           {target, beingDeleted(created.Add(time.Minute)), time.Minute},
		"being deleted, and does not fail":   {none, beingDeleted(created.Add(time.Minute)), deadline},
		"being deleted after its deadline":   {target, beingDeleted(created.Add(time.Hour)), deadline},
		"a deadline that an editor made 60s": {func(j *batchv1.Job) { *j.Spec.ActiveDeadlineSeconds = 60 }, running, 90 * time.Second},
	} {
		job := newJob(t, many(1), tt.job)
		var pods []*corev1.Pod
		if tt.pod != nil {
			pods = append(pods, newPod(job, tt.pod))
		}
		got, err := mountjobs.Read(job, pods, created.Add(time.Second))
		if err != nil || got.State != mountjobs.Running || !got.Until.Equal(created.Add(tt.want)) {
			t.Errorf("%s: %s until %s, error %v, want %s", name, got.State, got.Until.Sub(created), err, tt.want)
		}
	}
}

// TestBatchBeganNotBeforeItsJob, whatever clock wrote it.
func TestBatchBeganNotBeforeItsJob(t *testing.T) {
	for name, tt := range map[string]struct{ began, want time.Duration }{
		"after it":  {time.Minute, time.Minute},
		"before it": {-time.Hour, 0},
	} {
		job := newJob(t, many(1))
		data, err := operations.EncodeBatch(operations.Batch{Number: 2, Began: created.Add(tt.began), Operations: many(1)})
		if err != nil {
			t.Fatal(err)
		}
		job.Annotations[wellknown.AnnotationBatch(2)] = string(data)
		batches, err := mountjobs.Batches(job)
		if err != nil || len(batches) != 2 || !batches[1].Began.Equal(created.Add(tt.want)) {
			t.Errorf("%s: %+v, error %v", name, batches, err)
		}
	}
}

// TestMessagesOfPodsAreCut to what an event has room for, on one line and between characters.
func TestMessagesOfPodsAreCut(t *testing.T) {
	for name, text := range map[string]string{
		"long":           strings.Repeat("x", 4096),
		"long, not cut":  strings.Repeat("ü", 2000),
		"many lines":     strings.Repeat("line\r\n\t", 500),
		"not UTF-8":      strings.Repeat("\xff\xfe", 1000),
		"terminal codes": "\x1b[2J\x00" + strings.Repeat("x", 300),
	} {
		job := newJob(t, many(1))
		got, err := mountjobs.Read(job, []*corev1.Pod{newPod(job, ended(1, "Error", text))}, created)
		if err != nil || len(got.Message) > 400 || strings.ContainsFunc(got.Message, unicode.IsControl) || strings.ToValidUTF8(got.Message, "") != got.Message {
			t.Errorf("%s: %d bytes: %q, error %v", name, len(got.Message), got.Message, err)
		}
	}
}

// TestImageOfTheWorkerIsNamed, not that of a container that a service mesh adds.
func TestImageOfTheWorkerIsNamed(t *testing.T) {
	job := newJob(t, many(1))
	pod := newPod(job, waiting("ErrImagePull", "not found"))
	pod.Spec.Containers = append([]corev1.Container{{Name: "istio-proxy", Image: "mesh.example.com/proxy:9"}}, pod.Spec.Containers...)
	reason, message := mountjobs.Diagnose(job, pod, nil)
	if reason != mountjobs.ImagePullFailed || !strings.Contains(message, image) || strings.Contains(message, "mesh.example.com") {
		t.Errorf("got %q: %s", reason, message)
	}
}

// TestHighestNumber is one that a label's value has room for.
func TestHighestNumber(t *testing.T) {
	spec := mountjobs.Spec{Settings: settings(), FileSystemID: fileSystem, Number: 999_999_999, Operations: many(1)}
	job, err := mountjobs.Build(spec)
	if err != nil {
		t.Fatal(err)
	}
	if name, ok := mountjobs.ParseName(job.Name); !ok || name.Number != spec.Number {
		t.Errorf("%s is parsed as %+v", job.Name, name)
	}
}
