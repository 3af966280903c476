package ledger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

const testFS = "fs-0123456789abcdef0"

func TestWhatKeepsARequestFromAnAnswerIsSaid(t *testing.T) {
	terminated := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}}
	tests := map[string]struct {
		job    func(*batchv1.Job)
		state  corev1.ContainerState // of the pod's container
		log    string
		want   string
		waited string // what was printed meanwhile
	}{
		"a pod that was killed": {nil, terminated, `{"trashed":{"slot":"a"}}` + "\n", "code 137: OOMKilled", ""},
		"a Job that never started": {func(job *batchv1.Job) {
			job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}}
		}, corev1.ContainerState{}, "", "ended before its container started", ""},
		"an image that is not there": {nil, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}},
			"", "interrupted", "no such image"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset()
				client.PrependReactor("create", "jobs", func(action clienttesting.Action) (bool, runtime.Object, error) {
					create, _ := action.(clienttesting.CreateAction)
					job, _ := create.GetObject().(*batchv1.Job)
					if tt.job != nil {
						tt.job(job)
					}
					return false, nil, client.Tracker().Add(podOfJob(job, tt.state))
				})
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("interrupted"))
				defer cancel()
				said := ""
				r := Runner{
					Client: client, Settings: mountjobs.Settings{Namespace: "efs-stunnel", Image: "image"},
					Aliases: func(string) []string { return nil },
					Used:    func(context.Context, string) (bool, error) { return false, nil },
					Logs: func(context.Context, string) (io.ReadCloser, error) {
						return io.NopCloser(strings.NewReader(tt.log)), nil
					},
					Waiting: func(_, message string) { said += message },
				}
				_, err := r.Ask(ctx, ToEach([]string{testFS}, requests.Request{Do: requests.ListTrash}))
				if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(said, tt.waited) {
					t.Errorf("%v; said %q", err, said)
				}
				if jobs, err := client.BatchV1().Jobs("").List(t.Context(), metav1.ListOptions{}); err != nil || len(jobs.Items) > 0 {
					t.Errorf("left: %v, %v", jobs.Items, err)
				}
			})
		})
	}
}

func podOfJob(job *batchv1.Job, state corev1.ContainerState) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace, Name: job.Name + "-pod", Labels: map[string]string{batchv1.JobNameLabel: job.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Spec:   corev1.PodSpec{NodeName: "n1"},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: mountjobs.ContainerName, State: state}}},
	}
}

// TestOneFileSystemThatFailsDoesNotHideOthers: the list has what the others have answered.
func TestOneFileSystemThatFailsDoesNotHideOthers(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("create", "jobs", func(action clienttesting.Action) (bool, runtime.Object, error) {
		create, _ := action.(clienttesting.CreateAction)
		job, _ := create.GetObject().(*batchv1.Job)
		if strings.HasPrefix(job.Name, "efs-ledger-fs-1-") {
			return true, nil, errors.New("no answer")
		}
		return false, nil, client.Tracker().Add(podOfJob(job, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}))
	})
	r := Runner{
		Client: client, Settings: mountjobs.Settings{Namespace: "efs-stunnel", Image: "image"},
		Aliases: func(string) []string { return nil },
		Used:    func(context.Context, string) (bool, error) { return false, nil },
		Logs: func(context.Context, string) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(`{"trashed":{"slot":"a"}}` + "\n" + `{"end":{"lines":1}}` + "\n")), nil
		},
	}
	items, err := r.ListTrash(t.Context(), []string{"fs-1", "fs-2"})
	if err == nil || !strings.HasPrefix(err.Error(), "file system fs-1: ") || !strings.HasSuffix(err.Error(), ": no answer") {
		t.Error(err)
	}
	if len(items) != 1 || items[0].FileSystem != "fs-2" || items[0].Slot != "a" {
		t.Errorf("%+v", items)
	}
}

// TestPiecesFitInRequests with the longest paths, and those that become longer when they are written.
func TestPiecesFitInRequests(t *testing.T) {
	for _, letter := range []string{"a", "$", "<", "\u202e"} {
		var paths []string
		for i := range 300 {
			paths = append(paths, fmt.Sprintf("/%d%s", i, strings.Repeat(letter, 1000/len(letter))))
		}
		split := pieces(paths)
		for _, piece := range split {
			request := requests.Request{Do: requests.ListDirectories, Directories: &requests.Directories{Paths: piece}}
			if _, err := request.Encode(); err != nil {
				t.Errorf("%q: %d paths: %v", letter, len(piece), err)
			}
		}
		if got := slices.Concat(split...); len(split) < 2 || !slices.Equal(got, paths) {
			t.Errorf("%q: %d pieces with %d of %d paths", letter, len(split), len(got), len(paths))
		}
	}
	if all := directoryRequests(requests.Directories{Patterns: []string{"/*"}}); len(all) != 1 || len(directoryRequests(requests.Directories{})) != 0 {
		t.Errorf("%+v: a pattern is one request, and nothing is none", all)
	}
}
