// Package ledger is what the plugin of kubectl does with the ledger and the trash of file systems. A Runner answers
// its requests by Jobs, with the rights of the user; pure functions decide what follows from the answers.
package ledger

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/program/logging"
)

// Runner answers requests, each by a Job in the namespace of the installation.
type Runner struct {
	Client   kubernetes.Interface
	Settings mountjobs.Settings
	// Aliases are the ids that a file system may carry as a copy of another.
	Aliases func(fileSystem string) []string
	// Used reports whether volumes are on a server of one's own, whose disk may be another one.
	Used func(ctx context.Context, fileSystem string) (bool, error)
	// Logs follows the log of a pod; nil asks the apiserver.
	Logs func(ctx context.Context, pod string) (io.ReadCloser, error)
	// Waiting is called when a Job does not start within two seconds, and with each new reason.
	Waiting func(fileSystem, message string)
}

const (
	pollInterval = 250 * time.Millisecond
	quietTime    = 2 * time.Second  // until the user is shown what is waited for
	deleteTime   = 10 * time.Second // for the deletion of a Job, also after an interrupt
)

// Requests has the requests to each file system.
type Requests map[string][]requests.Request

// ToEach sends one request to several file systems.
func ToEach(fileSystems []string, request requests.Request) Requests {
	all := Requests{}
	for _, id := range fileSystems {
		all[id] = []requests.Request{request}
	}
	return all
}

// Answer collects what a file system has answered to its requests.
type Answer struct {
	Trashed     []requests.Trashed
	Owned       []requests.Owned // of the last request: each that lists owners lists all
	Directories []requests.Directory
	Adopted     []requests.Adopted
	End         requests.End // of the last request; the zero value if it has none
}

func (a *Answer) add(line requests.Line) {
	switch {
	case line.Trashed != nil:
		a.Trashed = append(a.Trashed, *line.Trashed)
	case line.Owned != nil:
		a.Owned = append(a.Owned, *line.Owned)
	case line.Directory != nil:
		a.Directories = append(a.Directories, *line.Directory)
	case line.Adopted != nil:
		a.Adopted = append(a.Adopted, *line.Adopted)
	}
}

const atOnce = 8

// Ask sends its requests to each file system, several at once, and returns the answers by file system. One that does
// not answer does not keep the others from it: with an error, there is what has arrived.
func (r Runner) Ask(ctx context.Context, wanted Requests) (map[string]*Answer, error) {
	answers, fileSystems := map[string]*Answer{}, slices.Sorted(maps.Keys(wanted))
	errs := make([]error, len(fileSystems))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, id := range fileSystems {
		answer := &Answer{}
		answers[id] = answer
		group.Go(func() error {
			if err := r.askOne(ctx, id, wanted[id], answer); err != nil {
				errs[i] = fmt.Errorf("file system %s: %w", id, err)
			}
			return nil
		})
	}
	_ = group.Wait()
	return answers, logging.Errors(errs...)
}

func (r Runner) askOne(ctx context.Context, fileSystem string, wanted []requests.Request, answer *Answer) error {
	used, err := r.Used(ctx, fileSystem) // once: it may list all volumes
	if err != nil {
		return err
	}
	for _, request := range wanted {
		answer.Owned = nil
		if err := r.run(ctx, fileSystem, used, request, answer); err != nil {
			return err
		}
	}
	return nil
}

func (r Runner) run(ctx context.Context, fileSystem string, used bool, request requests.Request, answer *Answer) error {
	job, err := mountjobs.BuildLedger(mountjobs.Spec{
		Settings: r.Settings, FileSystemID: fileSystem, Aliases: r.Aliases(fileSystem), Used: used,
	}, rand.String(5), request)
	if err != nil {
		return err
	}
	created, err := r.Client.BatchV1().Jobs(r.Settings.Namespace).Create(ctx, job, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating Job %s: %w", job.Name, err)
	}
	return errors.Join(r.read(ctx, fileSystem, created, answer), r.remove(ctx, created))
}

func (r Runner) read(ctx context.Context, fileSystem string, job *batchv1.Job, answer *Answer) error {
	pod, err := r.awaitPod(ctx, fileSystem, job)
	if err != nil {
		return err
	}
	log, err := r.logs(ctx, pod.Name)
	if err != nil {
		return fmt.Errorf("reading the log of pod %s: %w", pod.Name, err)
	}
	defer log.Close()
	if answer.End, err = requests.Read(log, answer.add); err != nil {
		return fmt.Errorf("reading the answer of Job %s: %w%s", job.Name, err, r.lastWords(ctx, pod.Name))
	}
	if answer.End.Error != "" {
		return errors.New(answer.End.Error)
	}
	return nil
}

// directoryRequests lists directories, each once, in as many requests as their paths need.
func directoryRequests(wanted requests.Directories) (all []requests.Request) {
	if len(wanted.Patterns) > 0 {
		patterns := &requests.Directories{Patterns: wanted.Patterns}
		all = append(all, requests.Request{Do: requests.ListDirectories, Directories: patterns})
	}
	for _, paths := range pieces(slices.Compact(slices.Sorted(slices.Values(wanted.Paths)))) {
		all = append(all, requests.Request{Do: requests.ListDirectories, Directories: &requests.Directories{Paths: paths}})
	}
	return all
}

// pieceBytes leaves room in a request for what is not in its list.
const pieceBytes = requests.MaxRequestBytes - 4<<10

// pieces splits a list so that each piece fits in a request.
func pieces[T any](items []T) [][]T {
	var all [][]T
	size := 0
	for _, item := range items {
		data, _ := json.Marshal(item)                              // names and paths only
		length := len(data) + 1 + 5*bytes.Count(data, []byte("$")) // as Request.Encode writes it
		if len(all) == 0 || size+length > pieceBytes {
			all, size = append(all, nil), 0
		}
		last := len(all) - 1
		all[last], size = append(all[last], item), size+length
	}
	return all
}

func (r Runner) logs(ctx context.Context, pod string) (io.ReadCloser, error) {
	if r.Logs != nil {
		return r.Logs(ctx, pod)
	}
	options := &corev1.PodLogOptions{Container: mountjobs.ContainerName, Follow: true}
	return r.Client.CoreV1().Pods(r.Settings.Namespace).GetLogs(pod, options).Stream(ctx)
}

// awaitPod returns the pod of a Job when its container has started.
func (r Runner) awaitPod(ctx context.Context, fileSystem string, job *batchv1.Job) (pod *corev1.Pod, err error) {
	start, said := time.Now(), ""
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		// The Job comes first: a container that has not started after the end of its Job never will.
		current, err := r.Client.BatchV1().Jobs(job.Namespace).Get(ctx, job.Name, metav1.GetOptions{})
		if err != nil {
			return false, fmt.Errorf("reading Job %s: %w", job.Name, err)
		}
		if pod, err = r.podOf(ctx, job); err != nil || hasStarted(pod) {
			return true, err
		}
		if mountjobs.IsOver(current) {
			return false, fmt.Errorf("waiting for Job %s, which ended before its container started: %s", job.Name, cmp.Or(said, "its pod is gone"))
		}
		if time.Since(start) < quietTime {
			return false, nil
		}
		if why := r.whyWaiting(ctx, current, pod); why != said {
			said = why
			r.Waiting(fileSystem, why)
		}
		return false, nil
	})
	if ctx.Err() != nil {
		return nil, fmt.Errorf("waiting for Job %s: %w", job.Name, context.Cause(ctx))
	}
	return pod, err
}

func (r Runner) podOf(ctx context.Context, job *batchv1.Job) (*corev1.Pod, error) {
	pods, err := r.Client.CoreV1().Pods(job.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.Set{batchv1.JobNameLabel: job.Name}.String(),
	})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of Job %s: %w", job.Name, err)
	}
	for i := range pods.Items {
		if metav1.IsControlledBy(&pods.Items[i], job) {
			return &pods.Items[i], nil
		}
	}
	return nil, nil //nolint:nilnil // the Job has none yet
}

func hasStarted(pod *corev1.Pod) bool {
	if pod == nil {
		return false
	}
	state := mountjobs.ContainerOf(pod).State
	return state.Running != nil || state.Terminated != nil
}

// whyWaiting returns what keeps a Job's container from starting. Without the right to read events it says less.
func (r Runner) whyWaiting(ctx context.Context, job *batchv1.Job, pod *corev1.Pod) string {
	selector := fields.OneTermEqualSelector("type", corev1.EventTypeWarning).String()
	events, err := r.Client.CoreV1().Events(job.Namespace).List(ctx, metav1.ListOptions{FieldSelector: selector})
	if err != nil {
		events = &corev1.EventList{}
	}
	_, message := mountjobs.Diagnose(job, pod, events.Items)
	return cmp.Or(message, "Job "+job.Name+" has not started yet")
}

// lastWords returns how a container ended that has left no complete answer.
func (r Runner) lastWords(ctx context.Context, pod string) string {
	object, err := r.Client.CoreV1().Pods(r.Settings.Namespace).Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	if ended := mountjobs.ContainerOf(object).State.Terminated; ended != nil {
		return fmt.Sprintf(" (its container ended with code %d: %s)", ended.ExitCode, cmp.Or(ended.Message, ended.Reason))
	}
	return ""
}

// remove deletes a Job and its pod, also when the user has interrupted the plugin.
func (r Runner) remove(ctx context.Context, job *batchv1.Job) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteTime)
	defer cancel()
	return objects.DeleteJob(ctx, r.Client, job, metav1.DeletePropagationBackground)
}
