package mountjobs_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// FuzzRead: whatever annotation and termination message are, every operation has one result,
// and a failure never reads as success.
func FuzzRead(f *testing.F) {
	data, err := operations.Encode(threeKinds())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(data), `{"operations":[0,0,0]}`, int32(0))
	f.Add(string(data), `{"operations":[2000,0,2001]}`, int32(0))
	f.Add(string(data), `{"operations":[-1,-2,-2],"results":[{},{"state":"failed","reason":"IOError"}]}`, int32(1))
	f.Add(`{"operations":[{"do":"setup","under":"/","claim":"a","uid":"1"}]}`, "exit", int32(137))
	f.Add(`{"operations":null}`, "", int32(0))
	f.Fuzz(func(t *testing.T, annotation, message string, code int32) {
		job := newJob(t, threeKinds())
		job.Annotations[wellknown.AnnotationOperations] = annotation
		job.Spec.Template.Annotations[wellknown.AnnotationOperations] = annotation
		got, err := mountjobs.Read(job, []*corev1.Pod{newPod(job, ended(code, "Error", message))}, created)
		if len(got.Report.Results) != len(got.Operations) {
			t.Fatalf("%d results of %d operations", len(got.Report.Results), len(got.Operations))
		}
		if err != nil && got.State != mountjobs.Lost {
			t.Errorf("operations cannot be read (%v), but the Job is %s", err, got.State)
		}
		if got.State == mountjobs.Succeeded && !got.Report.Succeeded() {
			t.Error("the Job succeeded, but not all of its operations")
		}
		if _, err := operations.DecodeReport([]byte(message), len(got.Operations)); err != nil && code != 0 && got.State != mountjobs.Lost {
			t.Errorf("code %d and no report, but the Job is %s", code, got.State)
		}
	})
}

// FuzzReadTask: nothing that a sweep leaves behind can hurt its reader.
func FuzzReadTask(f *testing.F) {
	f.Add(`{"removed":1,"volumes":2,"kept":3,"next":"2026-01-02T03:04:05Z","error":"x"}`, int32(1))
	f.Fuzz(func(t *testing.T, message string, code int32) {
		job := newSweep(t)
		got, err := mountjobs.Read(job, []*corev1.Pod{newPod(job, ended(code, "Error", message))}, created)
		report, unread := operations.DecodeTaskReport([]byte(message))
		if done := unread == nil && report.Succeeded(); err != nil || (got.State == mountjobs.Succeeded) != done {
			t.Errorf("%q is %s, error %v", message, got.State, err)
		}
	})
}
