package mountjobs_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

func cloneOperation() operations.Operation {
	o := operation(operations.Setup, 1)
	o.Kind = operations.Clone
	o.Source = operations.Source{SourcePath: "/team/source", SourceVolume: "pvc-source", SourceClaim: "source", SourceClaimUID: "source-uid"}
	return o
}

func cloneSpec(ops ...operations.Operation) mountjobs.Spec {
	return mountjobs.Spec{Kind: mountjobs.Clone, Settings: settings(), FileSystemID: fileSystem, Number: 3, Aliases: []string{"fs-old"}, Operations: ops}
}

func TestBuildCloneGolden(t *testing.T) {
	spec := cloneSpec(cloneOperation())
	spec.PriorityClassName = "high"                                                                // its claim waits
	spec.Linger, spec.Leader = spec.Timeout, mountjobs.Leader{Address: "10.0.0.1:8443", Key: "00"} // it has no more operations
	job, err := mountjobs.Build(spec)
	if err != nil {
		t.Fatal(err)
	}
	compareGolden(t, "clone-job.yaml", job)
}

func TestBuildCloneWantsOneCopy(t *testing.T) {
	abandoned := cloneOperation()
	abandoned.Abandon = true
	for name, ops := range map[string][]operations.Operation{
		"none":      nil,
		"two":       {cloneOperation(), cloneOperation()},
		"a setup":   {operation(operations.Setup, 1)},
		"abandoned": {abandoned},
	} {
		if _, err := mountjobs.Build(cloneSpec(ops...)); err == nil {
			t.Errorf("%s: there is no error", name)
		}
	}
}

func TestCloneIsReadLikeAMountJob(t *testing.T) {
	job, err := mountjobs.Build(cloneSpec(cloneOperation()))
	if err != nil {
		t.Fatal(err)
	}
	job.UID, job.CreationTimestamp = "job-uid", metav1.NewTime(created)
	report := operations.Report{Results: []operations.Result{{State: operations.Done, GID: 7, Message: "copied 3 files"}}}
	outcome, err := mountjobs.Read(job, []*corev1.Pod{newPod(job, ended(0, "Completed", string(report.Encode())))}, created)
	if err != nil {
		t.Fatal(err)
	}
	if outcome.State != mountjobs.Succeeded || outcome.Name.Kind != mountjobs.Clone || len(outcome.Operations) != 1 || outcome.Report.Results[0].GID != 7 || outcome.Report.Results[0].Message != "copied 3 files" {
		t.Errorf("got %+v", outcome)
	}
}
