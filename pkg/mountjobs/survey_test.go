package mountjobs_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

func surveyRecord() mountjobs.SurveyRecord {
	return mountjobs.SurveyRecord{Began: created, After: "/team/a b"}
}

func newSurvey(t testing.TB) *batchv1.Job {
	t.Helper()
	job, err := mountjobs.Build(mountjobs.Spec{Kind: mountjobs.Survey, Settings: settings(), FileSystemID: fileSystem, Number: 1, Survey: surveyRecord()})
	if err != nil {
		t.Fatal(err)
	}
	job.UID, job.CreationTimestamp = "job-uid", metav1.NewTime(created)
	return job
}

func TestBuildSurveyGolden(t *testing.T) {
	s := settings()
	s.PriorityClassName = "high" // no claim waits for a survey
	job, err := mountjobs.Build(mountjobs.Spec{Kind: mountjobs.Survey, Settings: s, FileSystemID: fileSystem, Number: 3, Aliases: []string{"fs-old"}, Survey: surveyRecord()})
	if err != nil {
		t.Fatal(err)
	}
	compareGolden(t, "survey-job.yaml", job)
}

// A survey works beside mount Jobs for hours: it must not be able to change anything.
func TestSurveyMountsReadOnly(t *testing.T) {
	pod := newSurvey(t).Spec.Template.Spec
	container := pod.Containers[0]
	if len(pod.Volumes) != 1 || !pod.Volumes[0].PersistentVolumeClaim.ReadOnly || !container.VolumeMounts[0].ReadOnly {
		t.Errorf("volumes %+v, mounts %+v", pod.Volumes, container.VolumeMounts)
	}
	if limit := container.Resources.Limits.Memory().String(); limit != "64Mi" {
		t.Errorf("the limit of memory is %s", limit)
	}
}

func TestSurveyRecordIsReadAsItWasWritten(t *testing.T) {
	want := mountjobs.SurveyRecord{Began: created, After: "/team/a", Ended: created.Add(time.Hour), Failures: 3, Retry: created.Add(2 * time.Hour)}
	if got := mountjobs.SurveyRecordOf(map[string]string{wellknown.AnnotationSurvey: want.Encode()}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := mountjobs.SurveyRecordOf(newSurvey(t).Annotations); got != surveyRecord() {
		t.Errorf("the Job has %+v", got)
	}
	for _, text := range []string{"", "never", "[]", `{"began":"today"}`, `{"after":"../x"}`, `{"after":"/a\u001b"}`, `{"failures":-1}`} {
		if got := mountjobs.SurveyRecordOf(map[string]string{wellknown.AnnotationSurvey: text}); got != (mountjobs.SurveyRecord{}) {
			t.Errorf("%s was read as %+v", text, got)
		}
	}
}

func TestReadSurvey(t *testing.T) {
	tests := map[string]struct {
		pod     func(*corev1.Pod)
		now     time.Duration
		want    mountjobs.State
		volumes int
		message string
	}{
		"runs":                    {running, 0, mountjobs.Running, 0, ""},
		"all volumes":             {ended(0, "Completed", `{"counted":7}`), 0, mountjobs.Succeeded, 7, ""},
		"its log was full":        {ended(0, "Completed", `{"counted":7,"stopped":true}`), 0, mountjobs.Finished, 7, ""},
		"an error":                {ended(1, "Error", `{"counted":2,"error":"input/output error"}`), 0, mountjobs.Finished, 2, "input/output error"},
		"killed without a report": {ended(137, "OOMKilled", ""), 0, mountjobs.Lost, 0, "137"},
		"done without a report":   {ended(0, "Completed", ""), 0, mountjobs.Lost, 0, "no report"},
		"hangs":                   {running, 7 * time.Hour, mountjobs.Stuck, 0, "deadline"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := newSurvey(t)
			pod := newPod(job, tt.pod)
			got, err := mountjobs.Read(job, []*corev1.Pod{pod}, created.Add(tt.now))
			if err != nil {
				t.Fatal(err)
			}
			if got.State != tt.want || got.Task.Counted != tt.volumes || got.Pod != pod.Name || !strings.Contains(got.Message, tt.message) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// A survey Job is never taken for a mount Job, of which there is one at a time.
func TestSurveyIsNoOtherKindOfJob(t *testing.T) {
	job := newSurvey(t)
	job.Spec.Template.Annotations[wellknown.AnnotationOperations] = `{"operations":[{"do":"setup","uid":"1"}]}`
	if got, err := mountjobs.Read(job, nil, created); err != nil || got.Name.Kind != mountjobs.Survey || len(got.Operations) != 0 {
		t.Errorf("it was read as %+v: %v", got, err)
	}
	if n := mountjobs.NextNumber(mountjobs.Mount, fileSystem, []*batchv1.Job{job}); n != 1 {
		t.Errorf("the next mount Job has number %d", n)
	}
	if !slices.Contains(job.Finalizers, wellknown.FinalizerOutcome) {
		t.Error("it may be deleted before its outcome is used")
	}
}
