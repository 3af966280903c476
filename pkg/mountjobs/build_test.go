package mountjobs_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

var update = flag.Bool("update", false, "write the golden files anew")

func goldenSpecs() map[string]mountjobs.Spec {
	cleanup := operation(operations.Cleanup, 2)
	cleanup.Keep = "72h"
	return map[string]mountjobs.Spec{
		"mount-job.yaml": {
			Settings:     settings(),
			FileSystemID: fileSystem,
			Number:       1,
			Operations:   []operations.Operation{operation(operations.Setup, 1), cleanup},
		},
		"retry-job.yaml": {
			Settings: mountjobs.Settings{
				Namespace: "openshift-efs-stunnel", Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
				ImagePullSecrets: []string{"registry"}, PriorityClassName: "system-cluster-critical",
				Tolerations: []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}},
				Timeout:     90 * time.Second,
			},
			FileSystemID: fileSystem,
			Number:       100000,
			Aliases:      []string{"fs-older", "fs-old"},
			Used:         true,
			Operations:   []operations.Operation{operation(operations.Setup, 1)},
			AvoidNodes:   []string{"n2", "", "n1", "n2"},
		},
	}
}

func TestBuildGolden(t *testing.T) {
	for name, spec := range goldenSpecs() {
		t.Run(name, func(t *testing.T) {
			job, err := mountjobs.Build(spec)
			if err != nil {
				t.Fatal(err)
			}
			compareGolden(t, name, job)
		})
	}
}

func TestBuildWithoutNodeGolden(t *testing.T) {
	job, err := mountjobs.Build(mountjobs.Spec{Settings: settings(), FileSystemID: fileSystem, Number: 1, Operations: many(1), NoNode: true})
	if err != nil {
		t.Fatal(err)
	}
	compareGolden(t, "mount-without-node-job.yaml", job)
}

func TestBuildSweepGolden(t *testing.T) {
	s := settings()
	s.PriorityClassName = "high" // no claim waits for a sweep
	job, err := mountjobs.Build(mountjobs.Spec{Kind: mountjobs.Sweep, Settings: s, FileSystemID: fileSystem, Number: 3, Aliases: []string{"fs-old"}})
	if err != nil {
		t.Fatal(err)
	}
	compareGolden(t, "sweep-job.yaml", job)
}

func TestBuildLedgerGolden(t *testing.T) {
	selection := &requests.Selection{Cluster: cluster, Namespace: "team", Until: created}
	job, err := mountjobs.BuildLedger(mountjobs.Spec{Settings: settings(), FileSystemID: fileSystem, Aliases: []string{"fs-old"}}, "bcdfg",
		requests.Request{Do: requests.EmptyTrash, Selection: selection})
	if err != nil {
		t.Fatal(err)
	}
	compareGolden(t, "ledger-job.yaml", job)
}

// TestLedgerJobsAreNotTheManagers: it neither counts nor reads them.
func TestLedgerJobsAreNotTheManagers(t *testing.T) {
	job, err := mountjobs.BuildLedger(mountjobs.Spec{Settings: settings(), FileSystemID: fileSystem}, "00001", requests.Request{Do: requests.ListTrash})
	if err != nil {
		t.Fatal(err)
	}
	if name, err := mountjobs.Identify(job); err == nil {
		t.Errorf("it is taken for %+v", name)
	}
	if mountjobs.IsUnreleased(job) {
		t.Error("only the manager would remove its finalizer")
	}
	for _, kind := range []mountjobs.Kind{mountjobs.Mount, mountjobs.Sweep} {
		if next := mountjobs.NextNumber(kind, fileSystem, []*batchv1.Job{job}); next != 1 {
			t.Errorf("the next number of %s is %d", kind, next)
		}
	}
}

func compareGolden(t *testing.T, name string, job *batchv1.Job) {
	t.Helper()
	got, err := yaml.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, got) {
		t.Errorf("%s is not what Build gives; go test -update writes it (-want +got):\n%s", file, cmp.Diff(string(want), string(got)))
	}
}

func TestBuildRefuses(t *testing.T) {
	tests := map[string]struct {
		edit func(*mountjobs.Spec)
		want string
	}{
		"an id that would be a path":          {func(s *mountjobs.Spec) { s.FileSystemID = "../etc" }, "no target id"},
		"an alias that would be an argument":  {func(s *mountjobs.Spec) { s.Aliases = []string{"fs-1 --directory=/"} }, "no target id"},
		"no image":                            {func(s *mountjobs.Spec) { s.Image = "" }, "image"},
		"no namespace":                        {func(s *mountjobs.Spec) { s.Namespace = "" }, "namespace"},
		"the number 0":                        {func(s *mountjobs.Spec) { s.Number = 0 }, "from 1"},
		"a number that makes names too long":  {func(s *mountjobs.Spec) { s.Number = 1_000_000_000 }, "from 1 to 999999999"},
		"more operations than an annotation":  {func(s *mountjobs.Spec) { s.Operations = many(3000) }, "more than 65536"},
		"operations of which one has no home": {func(s *mountjobs.Spec) { s.Operations[1].Cluster = "" }, "names no cluster"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			spec := mountjobs.Spec{Settings: settings(), FileSystemID: fileSystem, Number: 1, Operations: many(2)}
			tt.edit(&spec)
			job, err := mountjobs.Build(spec)
			if err == nil || !strings.Contains(err.Error(), tt.want) || job != nil {
				t.Errorf("Build gave %v and error %v, want one with %q", job, err, tt.want)
			}
		})
	}
}

func TestBuildSharesNothing(t *testing.T) {
	job := newJob(t, many(1))
	job.Labels["x"], job.Annotations["x"] = "y", "y"
	if job.Spec.Template.Labels["x"] != "" || job.Spec.Template.Annotations["x"] != "" {
		t.Error("a Job and its pod share a map")
	}
}

func TestDeadlinesLeaveThePodToBeRead(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Second, 1500 * time.Millisecond, time.Hour} {
		spec := mountjobs.Spec{Settings: settings(), FileSystemID: fileSystem, Number: 1, Operations: many(1)}
		spec.Timeout = timeout
		job, err := mountjobs.Build(spec)
		if err != nil {
			t.Fatal(err)
		}
		pod, whole := *job.Spec.Template.Spec.ActiveDeadlineSeconds, *job.Spec.ActiveDeadlineSeconds
		if pod < 1 || whole != pod+int64(wellknown.MountJobStartGrace/time.Second) {
			t.Errorf("timeout %s: pod has %d s and Job %d s", timeout, pod, whole)
		}
	}
}

// many operations, each for a volume of its own.
func many(count int) []operations.Operation {
	ops := make([]operations.Operation, count)
	for i := range ops {
		ops[i] = operation(operations.Setup, i)
	}
	return ops
}
