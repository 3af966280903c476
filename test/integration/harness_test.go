//go:build integration

package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/test/integration/kubelet"
)

// These tests hold the harness to what package mountjobs says of real objects, without a
// manager: what the manager's tests build on must be true.

func TestJobSucceeds(t *testing.T) {
	s := newStage(t)
	s.send()
	outcome := s.awaitState(mountjobs.Succeeded, 0)
	if made := s.directories(); made != 3 {
		t.Errorf("%d directories are there", made)
	}
	if outcome.Node != s.Nodes[0] || time.Since(outcome.Ended) > time.Minute {
		t.Errorf("outcome %+v", outcome)
	}
	s.Eventually("the Job controller calls it Complete", func(ctx context.Context) error {
		job, _, err := s.look(ctx)
		if err == nil && job.Status.Succeeded != 1 {
			err = fmt.Errorf("status %+v", job.Status)
		}
		return err
	})
}

func TestJobAvoidsNodes(t *testing.T) {
	s := newStage(t)
	s.send(func(spec *mountjobs.Spec) { spec.AvoidNodes = s.Nodes[:1] })
	if outcome := s.awaitState(mountjobs.Succeeded, 0); outcome.Node != s.Nodes[1] {
		t.Errorf("it ran on %s", outcome.Node)
	}
}

func TestJobThatDoesNotStart(t *testing.T) {
	tests := map[string]struct {
		fate func(until <-chan struct{}) kubelet.Fate
		want mountjobs.Reason
	}{
		"no node": {func(until <-chan struct{}) kubelet.Fate {
			return kubelet.Fate{Unschedulable: "0/2 nodes are available: 2 Insufficient cpu.", Until: until}
		}, mountjobs.Unschedulable},
		"no mount": {func(until <-chan struct{}) kubelet.Fate {
			return kubelet.Fate{FailedMount: "mount.nfs: access denied by server while mounting 127.0.0.1:/", Until: until}
		}, mountjobs.MountDenied},
		"no image": {func(until <-chan struct{}) kubelet.Fate {
			return kubelet.Fate{ImagePull: "rpc error: code = NotFound desc = not found", Until: until}
		}, mountjobs.ImagePullFailed},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			mended := make(chan struct{})
			s.Kubelet.PlayNext(tt.fate(mended))
			s.send()
			s.awaitDiagnosis(tt.want)
			if made := s.directories(); made != 0 {
				t.Errorf("%d directories are there", made)
			}
			close(mended)
			s.awaitState(mountjobs.Succeeded, 0)
		})
	}
}

func TestJobWithoutAgents(t *testing.T) {
	s := newStage(t)
	for _, node := range s.Nodes {
		s.RemoveAgent(node)
	}
	s.send()
	s.awaitDiagnosis(mountjobs.NoNodeAgent)
}

func TestJobWithoutItsTunnel(t *testing.T) {
	s := newStage(t)
	s.writeTable(map[string]int{s.fileSystem: port + 1})
	s.send()
	s.awaitDiagnosis(mountjobs.MountRefused)
	s.writeTable(map[string]int{s.fileSystem: port})
	s.awaitState(mountjobs.Succeeded, 0)
}

func TestJobOnAnotherFileSystem(t *testing.T) {
	s := newStage(t)
	s.send()
	s.awaitState(mountjobs.Succeeded, 0)
	mine := s.fileSystem
	s.fileSystem = s.NewFileSystem()
	s.createRootVolume()
	s.createRootClaim()
	s.send() // its port still leads to the first one
	outcome := s.awaitState(mountjobs.Finished, 0)
	for _, result := range outcome.Report.Results {
		if result.Reason != operations.WrongFileSystem || !strings.Contains(result.Message, mine) {
			t.Errorf("result %+v", result)
		}
	}
	s.writeTable(map[string]int{s.fileSystem: port})
	s.send(func(spec *mountjobs.Spec) { spec.Number = 2 })
	s.awaitState(mountjobs.Succeeded, 0)
	if made := s.directories(); made != 3 {
		t.Errorf("%d directories are there", made)
	}
}

func TestJobBeforeItsRootClaim(t *testing.T) {
	w := newWorld(t)
	s := &stage{World: w, fileSystem: w.NewFileSystem()}
	s.writeTable(map[string]int{s.fileSystem: port})
	s.createRootVolume()
	s.send()
	s.awaitDiagnosis(mountjobs.RootClaimUnavailable)
	s.createRootClaim()
	s.awaitState(mountjobs.Succeeded, 0)
}

func TestJobThatEndsBadly(t *testing.T) {
	done, notDone, unknown := operations.Done, operations.NotDone, operations.Unknown
	tests := map[string]struct {
		fate   kubelet.Fate
		want   mountjobs.State
		states []operations.State
		made   int // directories
	}{
		"its mount is none":          {kubelet.Fate{CheckMount: true}, mountjobs.Finished, []operations.State{notDone, notDone, notDone}, 0},
		"terminated at once":         {kubelet.Fate{Ending: kubelet.Terminated}, mountjobs.Finished, []operations.State{notDone, notDone, notDone}, 0},
		"terminated after one":       {kubelet.Fate{Ending: kubelet.Terminated, Operations: 1}, mountjobs.Finished, []operations.State{done, notDone, notDone}, 1},
		"killed at once":             {kubelet.Fate{Ending: kubelet.Killed}, mountjobs.Lost, []operations.State{unknown, unknown, unknown}, 0},
		"killed after two":           {kubelet.Fate{Ending: kubelet.Killed, Operations: 2}, mountjobs.Lost, []operations.State{unknown, unknown, unknown}, 2},
		"killed before its report":   {kubelet.Fate{Ending: kubelet.Killed, Operations: kubelet.AllOperations}, mountjobs.Lost, []operations.State{unknown, unknown, unknown}, 3},
		"vanished with its report":   {kubelet.Fate{Ending: kubelet.Vanished, Operations: kubelet.AllOperations}, mountjobs.Lost, []operations.State{unknown, unknown, unknown}, 3},
		"vanished in the middle":     {kubelet.Fate{Ending: kubelet.Vanished, Operations: 1}, mountjobs.Lost, []operations.State{unknown, unknown, unknown}, 1},
		"past its deadline, unmade":  {kubelet.Fate{Delay: time.Hour}, mountjobs.Lost, []operations.State{unknown, unknown, unknown}, 0},
		"past its deadline, mounted": {kubelet.Fate{FailedMount: "mount.nfs: Connection timed out"}, mountjobs.Lost, []operations.State{unknown, unknown, unknown}, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.Kubelet.PlayNext(tt.fate)
			s.send(func(spec *mountjobs.Spec) {
				if strings.HasPrefix(name, "past its deadline") {
					spec.Timeout = 2 * time.Second
				}
			})
			outcome := s.awaitState(tt.want, 0)
			if got := states(outcome); !slices.Equal(got, tt.states) {
				t.Errorf("states %q, want %q: %s", got, tt.states, outcome.Message)
			}
			if made := s.directories(); made != tt.made {
				t.Errorf("%d directories are there, want %d", made, tt.made)
			}
			s.send(func(spec *mountjobs.Spec) { spec.Number = 2 })
			s.awaitState(mountjobs.Succeeded, 0)
		})
	}
}

func TestJobThatHangs(t *testing.T) {
	s := newStage(t)
	over := make(chan struct{})
	s.Kubelet.PlayNext(kubelet.Fate{Ending: kubelet.Hung, Until: over})
	s.send()
	s.Eventually("the pod runs", func(ctx context.Context) error {
		job, pods, err := s.look(ctx)
		if err != nil {
			return err
		}
		pod := s.podOf(job, pods)
		if pod == nil || pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("pod %+v", pod)
		}
		return s.Client.CoreV1().Pods(s.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(600))})
	})
	s.awaitState(mountjobs.Stuck, 11*time.Minute)
	s.awaitState(mountjobs.Running, 0)
	close(over)
	s.awaitState(mountjobs.Lost, 0)
}

func TestHooks(t *testing.T) {
	s := newStage(t)
	calls := make(chan string, 2)
	s.Kubelet.PlayNext(kubelet.Fate{
		Before: func(_ context.Context, run kubelet.Run) {
			calls <- fmt.Sprint("before ", run.ExitCode, s.directories())
		},
		After: func(_ context.Context, run kubelet.Run) { calls <- fmt.Sprint("after ", run.ExitCode, s.directories()) },
	})
	s.send()
	s.awaitState(mountjobs.Succeeded, 0)
	if before, after := <-calls, <-calls; before != "before 0 0" || after != "after 0 3" {
		t.Errorf("calls %q, %q", before, after)
	}
	ops, err := operations.Decode([]byte(s.Kubelet.Runs()[0].Operations))
	if err != nil || len(ops) != 3 {
		t.Errorf("operations %v, error %v", ops, err)
	}
}

func TestWorldsLeaveNothing(t *testing.T) {
	var s *stage
	t.Run("a world", func(t *testing.T) {
		s = newStage(t)
		s.Kubelet.PlayNext(kubelet.Fate{Ending: kubelet.Hung})
		s.NewClass("left", nil)
		s.send()
		s.NewClaim("left", s.Named("left"), func(claim *corev1.PersistentVolumeClaim) {
			claim.Finalizers = []string{"example.com/stuck"}
		})
	})
	s.TB = t // of the world only its client is left
	core := s.Client.CoreV1()
	s.Eventually("the world is gone", func(ctx context.Context) error {
		var left []string
		for _, name := range []string{s.Namespace, s.Team} {
			if _, err := core.Namespaces().Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				left = append(left, fmt.Sprintf("namespace %s: %v", name, err))
			}
		}
		pvs, err1 := core.PersistentVolumes().List(ctx, metav1.ListOptions{})
		nodes, err2 := core.Nodes().List(ctx, metav1.ListOptions{})
		classes, err3 := s.Client.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
		if err := errors.Join(err1, err2, err3); err != nil {
			return err
		}
		if count := len(left) + len(pvs.Items) + len(nodes.Items) + len(classes.Items); count > 0 {
			return fmt.Errorf("%v, %d volumes, %d nodes, %d classes", left, len(pvs.Items), len(nodes.Items), len(classes.Items))
		}
		return nil
	})
}
