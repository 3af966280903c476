package mountjobs_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// threeKinds is the batch of every Job in these tests.
func threeKinds() []operations.Operation {
	return ops(operation(operations.Setup, 0), operation(operations.Cleanup, 1), operation(operations.Setup, 2))
}

func TestRead(t *testing.T) {
	const (
		midway  = 5 * time.Minute
		overdue = 15*time.Minute + 31*time.Second
	)
	allDone := `{"operations":[0,0,0]}`
	type jobEdit = func(*batchv1.Job)
	type podEdit = func(*corev1.Pod)
	tests := map[string]struct {
		job  jobEdit // or nil
		pod  podEdit // nil is no pod
		now  time.Duration
		want mountjobs.State
		node string
		// states has d(one), f(ailed), b(locked), n(ot done) or ? for each operation.
		states  string
		message string // a part of it
	}{
		"a Job without a pod yet":                {nil, nil, midway, mountjobs.Running, "", "???", ""},
		"a pod that waits for its node":          {nil, func(p *corev1.Pod) { p.Spec.NodeName, p.Status = "", corev1.PodStatus{Phase: corev1.PodPending} }, midway, mountjobs.Running, "", "???", ""},
		"a pod that runs":                        {nil, running, midway, mountjobs.Running, "n1", "???", ""},
		"code 0 and everything done":             {nil, ended(0, "Completed", allDone), midway, mountjobs.Succeeded, "n1", "ddd", ""},
		"the container ended before the pod":     {nil, func(p *corev1.Pod) { ended(0, "Completed", allDone)(p); p.Status.Phase = corev1.PodRunning }, midway, mountjobs.Succeeded, "n1", "ddd", ""},
		"one failed":                             {nil, ended(1, "Error", `{"operations":[0,-1,0],"results":[{"state":"failed","reason":"IOError"}]}`), midway, mountjobs.Finished, "n1", "dfd", "code 1"},
		"one is blocked, one was not begun":      {nil, ended(1, "Error", `{"operations":[0,-1,-2],"results":[{"state":"blocked"},{"state":"notDone"}]}`), midway, mountjobs.Finished, "n1", "dbn", ""},
		"a report that is not complete":          {nil, ended(1, "Error", `{"operations":[-1,0,-1],"results":[{}]}`), midway, mountjobs.Finished, "n1", "?d?", ""},
		"the report weighs more than the code":   {nil, ended(137, "OOMKilled", allDone), midway, mountjobs.Succeeded, "n1", "ddd", ""},
		"and even more than code 0":              {nil, ended(0, "Completed", `{"operations":[0,-1,0],"results":[{"state":"failed"}]}`), midway, mountjobs.Finished, "n1", "dfd", ""},
		"killed without a report":                {nil, ended(137, "OOMKilled", ""), midway, mountjobs.Lost, "n1", "???", "code 137 (OOMKilled) and left no report"},
		"text in place of a report":              {nil, ended(1, "Error", "mountjob: reading operations: unknown field \"x\""), midway, mountjobs.Lost, "n1", "???", "unknown field"},
		"a report of another batch":              {nil, ended(1, "Error", `{"operations":[0,0]}`), midway, mountjobs.Lost, "n1", "???", "no report that can be read"},
		"code 0 without a report":                {nil, ended(0, "Completed", ""), midway, mountjobs.Finished, "n1", "???", "code 0 (Completed) and left no report"},
		"complete, but the pod is gone":          {condition(batchv1.JobComplete, "CompletionsReached", ""), nil, midway, mountjobs.Finished, "", "???", "is gone"},
		"nearly complete, and the pod gone":      {condition(batchv1.JobSuccessCriteriaMet, "CompletionsReached", ""), nil, midway, mountjobs.Finished, "", "???", ""},
		"failed, and the pod gone":               {condition(batchv1.JobFailed, "BackoffLimitExceeded", "Job has reached the specified backoff limit"), nil, midway, mountjobs.Lost, "", "???", "BackoffLimitExceeded"},
		"failed, but the cache shows a live pod": {condition(batchv1.JobFailed, "BackoffLimitExceeded", ""), running, midway, mountjobs.Running, "n1", "???", ""},
		"failed, and the pod can be read":        {condition(batchv1.JobFailed, "BackoffLimitExceeded", ""), ended(1, "Error", `{"operations":[-1,0,0],"results":[{"state":"failed"}]}`), midway, mountjobs.Finished, "n1", "fdd", ""},
		"the image has no mountjob":              {nil, ended(128, "StartError", `exec: "/usr/local/bin/mountjob": stat /usr/local/bin/mountjob: no such file or directory`), midway, mountjobs.Lost, "n1", "???", "has no mountjob"},
		"evicted before it started": {nil, func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "The node was low on resource: memory."}
		}, midway, mountjobs.Lost, "n1", "???", "low on resource"},
		"never got a pod until the deadline":   {nil, nil, overdue, mountjobs.Lost, "", "???", "past its deadline"},
		"deleted before it started":            {func(j *batchv1.Job) { j.DeletionTimestamp = &metav1.Time{Time: created} }, nil, midway, mountjobs.Lost, "", "???", "the Job was deleted"},
		"hung beyond the deadline":             {nil, running, overdue, mountjobs.Stuck, "n1", "???", "past its deadline"},
		"hung, and its deadline edited away":   {func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = nil }, running, overdue, mountjobs.Stuck, "n1", "???", ""},
		"being deleted, in its grace":          {condition(batchv1.JobFailureTarget, "DeadlineExceeded", ""), beingDeleted(created.Add(midway)), midway, mountjobs.Running, "n1", "???", ""},
		"being deleted, and will not die":      {condition(batchv1.JobFailureTarget, "DeadlineExceeded", ""), beingDeleted(created.Add(midway)), midway + 1, mountjobs.Stuck, "n1", "???", "does not end"},
		"being deleted, Job does not know yet": {nil, beingDeleted(created.Add(midway)), midway + 1, mountjobs.Running, "n1", "???", ""},
		"being deleted, but it has reported":   {condition(batchv1.JobFailureTarget, "DeadlineExceeded", ""), func(p *corev1.Pod) { beingDeleted(created.Add(midway))(p); ended(1, "Error", allDone)(p) }, overdue, mountjobs.Succeeded, "n1", "ddd", ""},
		"a start that was late counts":         {started(time.Minute), running, overdue, mountjobs.Running, "n1", "???", ""},
		"a start before the Job's creation":    {started(-time.Hour), running, midway, mountjobs.Running, "n1", "???", ""},
		"a start that has not come":            {started(time.Hour), running, overdue, mountjobs.Stuck, "n1", "???", ""},
		"a deadline beyond all time":           {func(j *batchv1.Job) { *j.Spec.ActiveDeadlineSeconds = 1 << 62 }, running, overdue, mountjobs.Running, "n1", "???", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := newJob(t, threeKinds())
			if tt.job != nil {
				tt.job(job)
			}
			var pods []*corev1.Pod
			if tt.pod != nil {
				pods = append(pods, newPod(job, tt.pod))
			}
			got, err := mountjobs.Read(job, pods, created.Add(tt.now))
			if err != nil {
				t.Fatal(err)
			}
			if got.State != tt.want || got.Node != tt.node || states(got.Report) != tt.states || !strings.Contains(got.Message, tt.message) {
				t.Errorf("got %s on %q with %s: %s", got.State, got.Node, states(got.Report), got.Message)
			}
			if got.HoldsFileSystem() != (tt.want == mountjobs.Running) {
				t.Error("only a running Job holds its file system")
			}
			byTime := strings.Contains(got.Message, "past its deadline") || strings.Contains(got.Message, "does not end")
			if got.Overdue != byTime {
				t.Errorf("overdue is %t", got.Overdue)
			}
			if got.HoldsFileSystem() && !got.Until.After(created) {
				t.Error("it would not be read again")
			}
			if diff := cmp.Diff(threeKinds(), got.Operations); diff != "" {
				t.Errorf("operations (-want +got):\n%s", diff)
			}
		})
	}
}

// started is a Job whose start the Job controller has written, so long after its creation.
func started(after time.Duration) func(*batchv1.Job) {
	return func(j *batchv1.Job) { j.Status.StartTime = &metav1.Time{Time: created.Add(after)} }
}

func states(report operations.Report) string {
	letters := map[operations.State]string{
		operations.Unknown: "?", operations.Done: "d", operations.Failed: "f", operations.Blocked: "b", operations.NotDone: "n",
	}
	var text strings.Builder
	for _, result := range report.Results {
		text.WriteString(letters[result.State])
	}
	return text.String()
}

func TestReadMatchesResultsToOperations(t *testing.T) {
	job := newJob(t, threeKinds())
	report := `{"operations":[0,-1,2000],"results":[{"state":"failed","reason":"IOError","message":"x"}]}`
	got, err := mountjobs.Read(job, []*corev1.Pod{newPod(job, ended(1, "Error", report))}, created)
	if err != nil {
		t.Fatal(err)
	}
	wanted, result := got.Operations[2], got.Report.Results[2]
	if wanted.Volume != threeKinds()[2].Volume || wanted.Path != threeKinds()[2].Path || result.GID != 2000 {
		t.Errorf("third operation: %+v, %+v", wanted, result)
	}
	if !got.BlamesNode() {
		t.Error("after an I/O error the next try could be elsewhere")
	}
}

func TestPodsOfOthersAreIgnored(t *testing.T) {
	job := newJob(t, threeKinds())
	done := ended(0, "Completed", `{"operations":[0,0,0]}`)
	tests := map[string]func(*corev1.Pod){
		"of an earlier Job of that name":  func(p *corev1.Pod) { p.OwnerReferences[0].UID = "another" },
		"without owner":                   func(p *corev1.Pod) { p.OwnerReferences = nil },
		"that the Job does not control":   func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil },
		"of another namespace":            func(p *corev1.Pod) { p.Namespace = "team" },
		"with another container that did": func(p *corev1.Pod) { p.Status.ContainerStatuses[1].Name = "other"; p.Status.Phase = corev1.PodRunning },
	}
	for name, edit := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := mountjobs.Read(job, []*corev1.Pod{nil, newPod(job, done, edit)}, created)
			if err != nil || got.State != mountjobs.Running {
				t.Errorf("got %s and error %v, want a Job that still runs", got.State, err)
			}
		})
	}
}

func TestReadWaitsForTheLastOfTwoPods(t *testing.T) {
	job := newJob(t, threeKinds())
	first := newPod(job, ended(1, "Error", ""))
	second := newPod(job, func(p *corev1.Pod) { p.Name, p.Spec.NodeName = "second", "n2" })
	got, _ := mountjobs.Read(job, []*corev1.Pod{first, second}, created)
	if got.State != mountjobs.Running || got.Node != "n2" {
		t.Errorf("while one of two runs: %s on %s", got.State, got.Node)
	}
	second.CreationTimestamp = metav1.NewTime(created.Add(time.Minute))
	ended(0, "Completed", `{"operations":[0,0,0]}`)(second)
	got, _ = mountjobs.Read(job, []*corev1.Pod{first, second}, created)
	if got.State != mountjobs.Succeeded || got.Node != "n2" {
		t.Errorf("got %s on %s, want the newest pod's", got.State, got.Node)
	}
}

func TestReadRefuses(t *testing.T) {
	annotate := func(value string) func(*batchv1.Job) {
		return func(job *batchv1.Job) {
			job.Annotations[wellknown.AnnotationOperations] = value
			job.Spec.Template.Annotations[wellknown.AnnotationOperations] = value
		}
	}
	tests := map[string]struct {
		edit func(*batchv1.Job)
		want error
		text string
	}{
		"another name":                      {func(j *batchv1.Job) { j.Name = "backup" }, mountjobs.ErrNotOurs, "name"},
		"a sweep Job":                       {func(j *batchv1.Job) { j.Name = "efs-sweep-fs-34a3p3-00001" }, mountjobs.ErrNotOurs, "label"},
		"a Job of the original system":      {func(j *batchv1.Job) { delete(j.Labels, wellknown.LabelMountJobFileSystemID) }, mountjobs.ErrNotOurs, "label"},
		"another file system's label":       {func(j *batchv1.Job) { j.Labels[wellknown.LabelMountJobFileSystemID] = "fs-1" }, mountjobs.ErrNotOurs, "fs-1"},
		"one that a CronJob owns":           {ownedByCronJob, mountjobs.ErrNotOurs, "CronJob"},
		"no annotation":                     {func(j *batchv1.Job) { j.Spec.Template.Annotations = nil }, mountjobs.ErrFormat, "no annotation"},
		"an annotation edited afterwards":   {func(j *batchv1.Job) { j.Annotations = nil }, mountjobs.ErrFormat, "not the one of its pod"},
		"nothing in it":                     {annotate(""), mountjobs.ErrFormat, "reading operations"},
		"half of it":                        {annotate(`{"operations":[{"do":`), mountjobs.ErrFormat, "reading operations"},
		"a list":                            {annotate(`[]`), mountjobs.ErrFormat, "reading operations"},
		"another manager's field":           {annotate(`{"operations":[{"do":"setup","uid":"1","color":"red"}]}`), mountjobs.ErrFormat, `unknown field "color"`},
		"more than any manager would write": {annotate(strings.Repeat(" ", 65<<10)), mountjobs.ErrFormat, "more than 65536"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := newJob(t, threeKinds(), tt.edit)
			pod := newPod(job, ended(0, "Completed", `{"operations":[0,0,0]}`))
			got, err := mountjobs.Read(job, []*corev1.Pod{pod}, created)
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %v, want %v with %q", err, tt.want, tt.text)
			}
			if got.Operations != nil || errors.Is(err, mountjobs.ErrFormat) && got.State != mountjobs.Lost {
				t.Errorf("outcome %s with operations %v", got.State, got.Operations)
			}
		})
	}
}

func TestUnreadableJobIsRunning(t *testing.T) {
	job := newJob(t, threeKinds(), func(j *batchv1.Job) { j.Annotations = nil })
	got, err := mountjobs.Read(job, []*corev1.Pod{newPod(job)}, created)
	if !errors.Is(err, mountjobs.ErrFormat) || !got.HoldsFileSystem() {
		t.Errorf("got %s and error %v: it still works on the file system", got.State, err)
	}
}

func ownedByCronJob(job *batchv1.Job) {
	controls := true
	job.OwnerReferences = []metav1.OwnerReference{{Kind: "CronJob", Name: "backup", Controller: &controls}}
}

func TestEndThatWasNotObservedHasNoTime(t *testing.T) {
	job := newJob(t, threeKinds())
	pod := newPod(job, func(pod *corev1.Pod) {
		pod.Status.Phase = corev1.PodFailed
		inState(pod, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown"}})
	})
	outcome, err := mountjobs.Read(job, []*corev1.Pod{pod}, created.Add(time.Minute))
	if err != nil || outcome.State != mountjobs.Lost || !outcome.Ended.IsZero() {
		t.Errorf("got %s, ended %s, %v", outcome.State, outcome.Ended, err)
	}
}

// TestNodesClockIsNotTrusted has a container end when its node says so, if that can be.
func TestNodesClockIsNotTrusted(t *testing.T) {
	completeAt := func(after time.Duration) func(*batchv1.Job) {
		return func(job *batchv1.Job) {
			condition(batchv1.JobComplete, "CompletionsReached", "")(job)
			job.Status.Conditions[0].LastTransitionTime = metav1.NewTime(created.Add(after))
		}
	}
	complete := completeAt(3 * time.Minute)
	const now = 5 * time.Minute
	for name, tt := range map[string]struct {
		job         func(*batchv1.Job)
		clock, want time.Duration // after the Job was made
	}{
		"right":                        {complete, time.Minute, time.Minute},
		"right, not counted yet":       {nil, time.Minute, time.Minute},
		"an hour fast":                 {complete, time.Hour, 3 * time.Minute},
		"an hour fast, of unknown end": {condition(batchv1.JobComplete, "CompletionsReached", ""), time.Hour, now},
		"an hour fast, not counted":    {nil, time.Hour, now},
		"an hour slow":                 {complete, -time.Hour, 0},
		"right, Job controller's slow": {completeAt(-time.Hour), time.Minute, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			var edits []func(*batchv1.Job)
			if tt.job != nil {
				edits = append(edits, tt.job)
			}
			job := newJob(t, threeKinds(), edits...)
			pod := newPod(job, ended(0, "Completed", `{"operations":[0,0,0]}`))
			for i := range pod.Status.ContainerStatuses {
				if end := pod.Status.ContainerStatuses[i].State.Terminated; end != nil {
					end.FinishedAt = metav1.NewTime(created.Add(tt.clock))
				}
			}
			outcome, err := mountjobs.Read(job, []*corev1.Pod{pod}, created.Add(now))
			if err != nil || !outcome.Ended.Equal(created.Add(tt.want)) {
				t.Errorf("got %s, %v, want %s", outcome.Ended, err, created.Add(tt.want))
			}
		})
	}
}

// TestReportThatCannotBeRead is for the log only: it may be about claims of other namespaces.
func TestReportThatCannotBeRead(t *testing.T) {
	const secret = `"results":[{"state":"failed","message":"/other/secret belongs to claim other/secret"}]}`
	for name, report := range map[string]string{
		"of another size":           `{"operations":[-1,0],` + secret,
		"of a batch that never was": `{"operations":[-1,0,0],"batch":9,` + secret,
		"cut off":                   strings.TrimSuffix(`{"operations":[-1,0,0],`+secret, "}"),
		"no JSON":                   "claim other/secret",
	} {
		for _, code := range []int32{0, 1} {
			job := newJob(t, threeKinds())
			job.Annotations[wellknown.AnnotationBatch(2)] = `{"batch":2,"began":"2026-01-02T03:04:05Z","operations":{"cluster":"c","operations":[{"do":"setup","claim":"x","uid":"1"}]}}`
			got, err := mountjobs.Read(job, []*corev1.Pod{newPod(job, ended(code, "Error", report))}, created)
			if err != nil || got.State != mountjobs.Lost || got.Unread != report {
				t.Errorf("%s, code %d: got %s with %q, %v", name, code, got.State, got.Unread, err)
			}
			if strings.Contains(got.Message, "secret") || !strings.Contains(got.Message, fmt.Sprintf("(%d bytes): ", len(report))) {
				t.Errorf("%s, code %d: the message is %q", name, code, got.Message)
			}
		}
	}
	sweep := newSweep(t)
	got, err := mountjobs.Read(sweep, []*corev1.Pod{newPod(sweep, ended(1, "Error", "claim other/secret"))}, created)
	if err != nil || got.Unread == "" || strings.Contains(got.Message, "secret") {
		t.Errorf("a sweep: got %q with %q, %v", got.Message, got.Unread, err)
	}
}
