package mountjobs_test

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

func newSweep(t testing.TB) *batchv1.Job {
	t.Helper()
	job, err := mountjobs.Build(mountjobs.Spec{Kind: mountjobs.Sweep, Settings: settings(), FileSystemID: fileSystem, Number: 1})
	if err != nil {
		t.Fatal(err)
	}
	job.UID, job.CreationTimestamp = "job-uid", metav1.NewTime(created)
	return job
}

func TestReadSweep(t *testing.T) {
	report := `{"removed":1234,"volumes":2,"kept":1,"next":"2026-01-02T03:04:05Z","error":"emptying: input/output error"}`
	tests := map[string]struct {
		pod     func(*corev1.Pod)
		now     time.Duration
		want    mountjobs.State
		removed int64
		message string
	}{
		"runs":                    {running, 0, mountjobs.Running, 0, ""},
		"all that was due":        {ended(0, "Completed", `{"removed":7,"volumes":1,"kept":0}`), 0, mountjobs.Succeeded, 7, ""},
		"some of it is left":      {ended(1, "Error", report), 0, mountjobs.Finished, 1234, "input/output error"},
		"killed without a report": {ended(137, "Error", ""), 0, mountjobs.Lost, 0, "code 137"},
		"done without a report":   {ended(0, "Completed", ""), 0, mountjobs.Lost, 0, "no report"}, // when the next is due is not known
		"hangs":                   {running, time.Hour, mountjobs.Stuck, 0, "deadline"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := newSweep(t)
			got, err := mountjobs.Read(job, []*corev1.Pod{newPod(job, tt.pod)}, created.Add(tt.now))
			if err != nil {
				t.Fatal(err)
			}
			if got.State != tt.want || got.Task.Removed != tt.removed || !strings.Contains(got.Message, tt.message) {
				t.Errorf("got %s, %+v: %s", got.State, got.Task, got.Message)
			}
		})
	}
}

// TestSweepThatGotOn: out of time is a failure only if nothing came of it.
func TestSweepThatGotOn(t *testing.T) {
	for report, want := range map[string]bool{
		`{"removed":7,"volumes":0,"kept":0,"stopped":true,"error":"stopped"}`: true,
		`{"removed":0,"volumes":1,"kept":0,"stopped":true,"error":"stopped"}`: true,
		`{"removed":0,"volumes":0,"kept":1,"stopped":true,"error":"stopped"}`: false,
		`{"removed":7,"volumes":1,"kept":0,"error":"input/output error"}`:     false,
		``: false,
	} {
		job := newSweep(t)
		got, err := mountjobs.Read(job, []*corev1.Pod{newPod(job, ended(1, "Error", report))}, created)
		if err != nil || got.Task.GotOn() != want {
			t.Errorf("%s: got %v, error %v", report, got.Task.GotOn(), err)
		}
	}
}

func TestReadSweepReportsTheNextOne(t *testing.T) {
	job := newSweep(t)
	report := `{"removed":1,"volumes":1,"kept":1,"next":"2026-01-02T03:04:05Z"}`
	got, err := mountjobs.Read(job, []*corev1.Pod{newPod(job, ended(0, "Completed", report))}, created)
	if want := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC); err != nil || !got.Task.Next.Equal(want) {
		t.Errorf("next is %s with error %v, want %s", got.Task.Next, err, want)
	}
}
