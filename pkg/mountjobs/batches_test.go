package mountjobs_test

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// withBatch is a Job whose worker was given a batch, as AddBatch changes it.
func withBatch(t *testing.T, job *batchv1.Job, used []int, filledTrash time.Time, ops ...operations.Operation) *batchv1.Job {
	t.Helper()
	metadata, err := mountjobs.AddBatch(job, operations.Batch{Number: mountjobs.NewestBatch(job) + 1, Began: created.Add(time.Minute), Operations: ops}, used, filledTrash)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(metadata)
	if err != nil {
		t.Fatal(err)
	}
	var change struct {
		ResourceVersion string
		Annotations     map[string]*string
		Labels          map[string]string
	}
	if err := json.Unmarshal(data, &change); err != nil {
		t.Fatal(err)
	}
	if change.ResourceVersion != job.ResourceVersion {
		t.Errorf("the change is of version %q", change.ResourceVersion)
	}
	job = job.DeepCopy()
	maps.Copy(job.Labels, change.Labels)
	for key, value := range change.Annotations {
		if delete(job.Annotations, key); value != nil {
			job.Annotations[key] = *value
		}
	}
	return job
}

func TestAddBatch(t *testing.T) {
	job := newJob(t, []operations.Operation{operation(operations.Setup, 1)})
	job.ResourceVersion = "7"
	job = withBatch(t, job, nil, time.Time{}, operation(operations.Setup, 2), operation(operations.Cleanup, 1))
	job = withBatch(t, job, []int{1, 2}, created, operation(operations.Restore, 3), operation(operations.Release, 4))
	batches, err := mountjobs.Batches(job)
	if err != nil {
		t.Fatal(err)
	}
	want := []operations.Batch{
		{Number: 1, Began: created, Operations: []operations.Operation{operation(operations.Setup, 1)}},
		{Number: 3, Began: created.Add(time.Minute), Operations: []operations.Operation{operation(operations.Restore, 3), operation(operations.Release, 4)}},
	}
	if diff := cmp.Diff(want, batches); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
	if mountjobs.NewestBatch(job) != 3 || job.Annotations[wellknown.AnnotationFilledTrash] != "2026-01-02T03:00:00Z" {
		t.Errorf("newest batch %d, annotations %v", mountjobs.NewestBatch(job), job.Annotations)
	}
	if job.Labels[wellknown.LabelSetUp] != "3" || job.Labels[wellknown.LabelCleanedUp] != "1" || job.Annotations[wellknown.AnnotationFirstClaim] != "team/data-1" {
		t.Errorf("labels %v, first claim %s", job.Labels, job.Annotations[wellknown.AnnotationFirstClaim])
	}
}

// A batch is decoded once for all its readers, who may change what Operations gave them.
func TestReadersOfAJobShareNoOperations(t *testing.T) {
	job := withBatch(t, newJob(t, many(2)), nil, time.Time{}, operation(operations.Setup, 7))
	read := func() []operations.Operation {
		ops, err := mountjobs.Operations(job, nil)
		if err != nil {
			t.Fatal(err)
		}
		return ops
	}
	want := []operations.Operation{operation(operations.Setup, 0), operation(operations.Setup, 1), operation(operations.Setup, 7)}
	changed := read()
	for i := range changed {
		changed[i].Path = "/changed"
	}
	if diff := cmp.Diff(want, read()); diff != "" {
		t.Errorf("read after another reader's change (-want +got):\n%s", diff)
	}
}

// A mark is as old as the newest batch was, and is needed as long as any batch of its volume is there.
func TestAddBatchRemovesMarksOfUsedBatches(t *testing.T) {
	job := newJob(t, []operations.Operation{operation(operations.Setup, 1)})
	job = withBatch(t, job, nil, time.Time{}, operation(operations.Setup, 2), operation(operations.Setup, 3))
	job = withBatch(t, job, nil, time.Time{}, operation(operations.Setup, 3), operation(operations.Setup, 4))
	for n := range 5 {
		job.Annotations[wellknown.AnnotationUsed(operation(operations.Setup, n).Volume)] = "3"
	}
	marks := func(j *batchv1.Job) (marked []int) {
		for n := range 5 {
			if _, ok := j.Annotations[wellknown.AnnotationUsed(operation(operations.Setup, n).Volume)]; ok {
				marked = append(marked, n)
			}
		}
		return marked
	}
	unreadable := job.DeepCopy()
	unreadable.Annotations[wellknown.AnnotationBatch(2)] = "x"
	for name, tt := range map[string]struct {
		job  *batchv1.Job
		used []int
		want []int
	}{
		"nothing is used":            {job, nil, []int{1, 2, 3, 4}},
		"the first one stays":        {job, []int{1, 2}, []int{1, 3, 4}},
		"both are used":              {job, []int{1, 2, 3}, []int{1}},
		"one of them cannot be read": {unreadable, []int{1, 2, 3}, []int{0, 1, 2, 3, 4}},
	} {
		if got := marks(withBatch(t, tt.job, tt.used, time.Time{}, operation(operations.Cleanup, 9))); !slices.Equal(got, tt.want) {
			t.Errorf("%s: marks of volumes %v, want %v", name, got, tt.want)
		}
	}
}

// However many batches a worker was given, and volumes were deleted meanwhile, what is not needed any more
// leaves room for the next.
func TestHasRoom(t *testing.T) {
	job := newJob(t, many(1))
	var ops []operations.Operation
	for n := range 300 {
		ops = append(ops, operation(operations.Setup, n+2))
	}
	given := 0
	for mountjobs.HasRoom(job, nil) {
		job = withBatch(t, job, nil, time.Time{}, ops...)
		given++
	}
	size := 0
	for name, value := range job.Annotations {
		size += len(name) + len(value)
	}
	if given < 2 || size > 192<<10 {
		t.Errorf("%d batches of %d bytes in all, want some, and at most 192 KiB", given, size)
	}
	if mountjobs.HasRoom(job, nil) || !mountjobs.HasRoom(job, []int{2}) {
		t.Error("only a batch that is used makes room")
	}
	for n := range 1000 {
		job.Annotations[wellknown.AnnotationUsed(operation(operations.Setup, n+500).Volume)] = "9"
	}
	if !mountjobs.HasRoom(job, []int{2}) {
		t.Error("marks of volumes that no batch has take room")
	}
}

func TestBatchesThatCannotBeRead(t *testing.T) {
	for name, annotations := range map[string]map[string]string{
		"no JSON":           {wellknown.AnnotationBatch(2): "x"},
		"of another number": {wellknown.AnnotationBatch(2): `{"batch":3,"began":"2026-01-02T03:04:05Z","operations":{"operations":[]}}`},
		"the first":         {wellknown.AnnotationBatch(2): `{"batch":1,"began":"2026-01-02T03:04:05Z","operations":{"operations":[]}}`},
		"too large":         {wellknown.AnnotationBatch(2): strings.Repeat(" ", operations.MaxBatchBytes+1)},
	} {
		job := newJob(t, many(1), func(j *batchv1.Job) { maps.Copy(j.Annotations, annotations) })
		if _, err := mountjobs.Batches(job); !errors.Is(err, mountjobs.ErrFormat) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	foreign := newJob(t, many(1), func(j *batchv1.Job) { j.Annotations["efs-stunnel.gnuthought.com/batch-02"] = "x" })
	if batches, err := mountjobs.Batches(foreign); err != nil || len(batches) != 1 {
		t.Errorf("an annotation of another form: got %v, %v", batches, err)
	}
}

// TestReadOfBatches: the letters are those of states; batch 1 has two operations, 2 and 3 have one each.
func TestReadOfBatches(t *testing.T) {
	done := operations.Report{Results: []operations.Result{{State: operations.Done}}}
	two := operations.Report{Results: []operations.Result{{State: operations.Done}, {State: operations.Failed}}}
	for name, tt := range map[string]struct {
		pod      func(*corev1.Pod)
		reported map[int]mountjobs.Reported
		state    mountjobs.State
		results  string
		running  string // by batch
		late     bool   // it is past the Job's deadline
	}{
		"nothing is reported":            {func(*corev1.Pod) {}, nil, mountjobs.Running, "????", "rrr", false},
		"the worker has reported one":    {func(*corev1.Pod) {}, map[int]mountjobs.Reported{1: {Report: two}}, mountjobs.Running, "df??", "-rr", false},
		"a report of another size":       {func(*corev1.Pod) {}, map[int]mountjobs.Reported{1: {Report: done}}, mountjobs.Running, "????", "rrr", false},
		"it waits":                       {func(*corev1.Pod) {}, map[int]mountjobs.Reported{1: {Report: two}, 2: {Report: done}, 3: {Report: done}}, mountjobs.Running, "dfdd", "---", false},
		"it ended after the first":       {ended(0, "Completed", `{"operations":[0,0]}`), nil, mountjobs.Succeeded, "ddnn", "---", false},
		"it ended after the second":      {ended(0, "Completed", `{"batch":2,"operations":[0]}`), map[int]mountjobs.Reported{1: {Report: two}}, mountjobs.Succeeded, "dfdn", "---", false},
		"it ended after the last":        {ended(0, "Completed", `{"batch":3,"operations":[0]}`), nil, mountjobs.Succeeded, "???d", "---", false},
		"an earlier one had failures":    {ended(1, "Error", `{"batch":3,"operations":[0]}`), nil, mountjobs.Finished, "???d", "---", false},
		"it died in the second":          {ended(137, "OOMKilled", `{"batch":2,"operations":[-1],"results":[{}]}`), nil, mountjobs.Finished, "???n", "---", false},
		"it reports a batch of no one's": {ended(0, "Completed", `{"batch":9,"operations":[0]}`), nil, mountjobs.Lost, "????", "---", false},
		"it left nothing":                {ended(0, "Completed", ""), nil, mountjobs.Lost, "????", "---", false},
		"it hangs in the second":         {running, map[int]mountjobs.Reported{1: {Report: two}}, mountjobs.Stuck, "df??", "---", true},
	} {
		t.Run(name, func(t *testing.T) {
			job := newJob(t, many(2))
			job = withBatch(t, job, nil, time.Time{}, operation(operations.Setup, 3))
			job = withBatch(t, job, nil, time.Time{}, operation(operations.Cleanup, 4))
			now := created.Add(2 * time.Minute)
			if tt.late {
				now = created.Add(time.Hour)
			}
			got, err := mountjobs.Read(job, []*corev1.Pod{newPod(job, tt.pod)}, now)
			if err != nil {
				t.Fatal(err)
			}
			got.Use(tt.reported)
			var running strings.Builder
			for _, r := range got.Runs {
				running.WriteString(map[bool]string{true: "r", false: "-"}[r.Running])
			}
			if got.State != tt.state || states(got.Report) != tt.results || running.String() != tt.running {
				t.Errorf("got %s, %s, %s; want %+v", got.State, states(got.Report), &running, tt)
			}
			if r := got.RunOf(2); r.Number != 2 || r.First != 2 || r.Count != 1 {
				t.Errorf("the third operation is in %+v", r)
			}
		})
	}
}

// TestReadOfAUsedBatch: batch 1 has an operation, 2 was used and is removed, 3 and 4 have one each. The worker
// ended while it was given 3.
func TestReadOfAUsedBatch(t *testing.T) {
	for name, tt := range map[string]struct {
		pod     func(*corev1.Pod)
		state   mountjobs.State
		results string
		blames  bool
	}{
		"there was nothing more to do": {ended(0, "Completed", `{"batch":2,"operations":[0]}`), mountjobs.Succeeded, "?nn", false},
		"a batch had failures":         {ended(1, "Error", `{"batch":2,"operations":[0]}`), mountjobs.Finished, "?nn", false},
		"a batch that never was":       {ended(0, "Completed", `{"batch":5,"operations":[0]}`), mountjobs.Lost, "???", true},
	} {
		t.Run(name, func(t *testing.T) {
			job := newJob(t, many(1))
			job = withBatch(t, job, nil, time.Time{}, operation(operations.Cleanup, 2))
			job = withBatch(t, job, []int{1, 2}, time.Time{}, operation(operations.Cleanup, 3))
			job = withBatch(t, job, nil, time.Time{}, operation(operations.Setup, 4))
			got, err := mountjobs.Read(job, []*corev1.Pod{newPod(job, tt.pod)}, created.Add(2*time.Minute))
			if err != nil || got.State != tt.state || states(got.Report) != tt.results || got.BlamesNode() != tt.blames {
				t.Errorf("got %s, %s, blames the node: %v, %v", got.State, states(got.Report), got.BlamesNode(), err)
			}
			if stopped := got.Report.Results[1].Reason == operations.Stopped; stopped == tt.blames {
				t.Errorf("the operation of batch 3 was stopped: %v", stopped)
			}
		})
	}
}
