//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
	"gnuthought.com/efs-stunnel/test/integration/world"
)

// port is where the harness' file systems are, one in each world.
const port = 20490

// stage is a file system that mount Jobs can use, and one mount Job for it.
type stage struct {
	*world.World
	fileSystem string
	job        *batchv1.Job
}

// newStage has all but the Job.
func newStage(t *testing.T) *stage {
	t.Helper()
	w := newWorld(t)
	s := &stage{World: w, fileSystem: w.NewFileSystem()}
	s.writeTable(map[string]int{s.fileSystem: port})
	s.createRootVolume()
	s.createRootClaim()
	return s
}

func (s *stage) writeTable(portOf map[string]int) {
	s.Helper()
	table := ports.Table{Targets: map[string]ports.Target{}}
	for id, port := range portOf {
		table.Targets[id] = ports.Target{Name: id, Port: port}
	}
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: wellknown.TargetsConfigMap},
		Data:       map[string]string{wellknown.TargetsKey: string(ports.Encode(table))},
	}
	maps := s.Client.CoreV1().ConfigMaps(s.Namespace)
	_, err := maps.Create(s.Context(), object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = maps.Update(s.Context(), object, metav1.UpdateOptions{})
	}
	if err != nil {
		s.Fatal(err)
	}
}

func (s *stage) createRootVolume() {
	s.Helper()
	volume := volumes.RootVolume(s.fileSystem, port, s.Namespace)
	if _, err := s.Client.CoreV1().PersistentVolumes().Create(s.Context(), volume, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
}

func (s *stage) createRootClaim() {
	s.Helper()
	claim := volumes.RootClaim(s.fileSystem, s.Namespace)
	if _, err := s.Client.CoreV1().PersistentVolumeClaims(s.Namespace).Create(s.Context(), claim, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
}

// setups are for three volumes.
func (s *stage) setups() []operations.Operation {
	var ops []operations.Operation
	for n := range 3 {
		uid := fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
		ops = append(ops, operations.Operation{
			Kind: operations.Setup,
			Owner: operations.Owner{
				Volume: "pvc-" + uid, Cluster: s.ClusterUID, Namespace: s.Team, Claim: fmt.Sprintf("data-%d", n), ClaimUID: uid,
			},
			Path: fmt.Sprintf("/%s/data-%d", s.Team, n),
		})
	}
	return ops
}

// send creates the Job.
func (s *stage) send(edits ...func(*mountjobs.Spec)) {
	s.Helper()
	spec := mountjobs.Spec{
		Settings:     mountjobs.Settings{Namespace: s.Namespace, Image: "registry.example.com/efs-stunnel:1.0"},
		FileSystemID: s.fileSystem, Number: 1, Operations: s.setups(),
	}
	for _, edit := range edits {
		edit(&spec)
	}
	job, err := mountjobs.Build(spec)
	if err != nil {
		s.Fatal(err)
	}
	if s.job, err = s.Client.BatchV1().Jobs(s.Namespace).Create(s.Context(), job, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
}

// look reads the Job and all pods beside it.
func (s *stage) look(ctx context.Context) (job *batchv1.Job, pods []*corev1.Pod, err error) {
	job, err = s.Client.BatchV1().Jobs(s.Namespace).Get(ctx, s.job.Name, metav1.GetOptions{})
	if err != nil {
		return nil, nil, err
	}
	found, err := s.Client.CoreV1().Pods(s.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	for i := range found.Items {
		pods = append(pods, &found.Items[i])
	}
	return job, pods, nil
}

// awaitState waits until Read, asked so long after now, gives a state.
func (s *stage) awaitState(want mountjobs.State, after time.Duration) mountjobs.Outcome {
	s.Helper()
	var outcome mountjobs.Outcome
	s.Eventually("the Job is "+string(want), func(ctx context.Context) error {
		job, pods, err := s.look(ctx)
		if err != nil {
			return err
		}
		if outcome, err = mountjobs.Read(job, pods, time.Now().Add(after)); err != nil {
			return err
		}
		if outcome.State != want {
			return fmt.Errorf("it is %s: %s", outcome.State, outcome.Message)
		}
		return nil
	})
	return outcome
}

// awaitDiagnosis waits until Diagnose gives a reason for a Job that goes on.
func (s *stage) awaitDiagnosis(want mountjobs.Reason) {
	s.Helper()
	s.Eventually("the Job's trouble is "+string(want), func(ctx context.Context) error {
		job, pods, err := s.look(ctx)
		if err != nil {
			return err
		}
		events, err := s.Client.CoreV1().Events(s.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		reason, message := mountjobs.Diagnose(job, s.podOf(job, pods), events.Items)
		if reason != want {
			return fmt.Errorf("it is %q: %s", reason, message)
		}
		return nil
	})
	s.awaitState(mountjobs.Running, 0)
}

func (s *stage) podOf(job *batchv1.Job, pods []*corev1.Pod) *corev1.Pod {
	for _, pod := range pods {
		if metav1.IsControlledBy(pod, job) {
			return pod
		}
	}
	return nil
}

// directories counts those that exist.
func (s *stage) directories() int {
	s.Helper()
	count := 0
	for _, operation := range s.setups() {
		if s.Exists(s.fileSystem, operation.Path) {
			count++
		}
	}
	return count
}

func states(outcome mountjobs.Outcome) []operations.State {
	var all []operations.State
	for _, result := range outcome.Report.Results {
		all = append(all, result.State)
	}
	return all
}
