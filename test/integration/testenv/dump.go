package testenv

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Dump describes the environment for a failed test: its objects, their events, the runs of pods, and
// the files of its file systems, the ledger included.
func (e *Env) Dump() string {
	var text strings.Builder
	ctx := context.WithoutCancel(e.Context())
	e.dumpTable(ctx, &text)
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	e.dumpVolumes(ctx, table)
	for _, namespace := range e.namespaces {
		e.dumpNamespace(ctx, table, namespace)
	}
	_ = table.Flush() // a Builder takes everything
	for _, namespace := range append(slices.Clone(e.namespaces), metav1.NamespaceDefault) {
		e.dumpEvents(ctx, &text, namespace)
	}
	for _, run := range e.Kubelet.Runs() {
		fmt.Fprintf(&text, "run of %s on %s: exit code %d\n%s\n%s", run.Pod, run.Node, run.ExitCode, run.Message, run.Log)
	}
	for _, id := range e.fileSystems() {
		dumpTree(&text, id, e.Folder(id))
	}
	return text.String()
}

func (e *Env) dumpTable(ctx context.Context, text io.Writer) {
	object, err := e.Client.CoreV1().ConfigMaps(e.Namespace).Get(ctx, wellknown.TargetsConfigMap, metav1.GetOptions{})
	if err != nil {
		fmt.Fprintf(text, "table: %v\n", err)
		return
	}
	fmt.Fprintf(text, "table:\n%s\n", object.Data[wellknown.TargetsKey])
}

func (e *Env) dumpVolumes(ctx context.Context, text io.Writer) {
	found, err := e.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		fmt.Fprintf(text, "volumes: %v\n", err)
		return
	}
	for _, pv := range found.Items {
		owner := "none"
		if ref := pv.Spec.ClaimRef; ref != nil {
			owner = fmt.Sprintf("%s/%s (%s)", ref.Namespace, ref.Name, ref.UID)
		}
		fmt.Fprintf(text, "volume\t%s\t%s%s\t%s\tclaim %s\t%s\t%s\n", pv.Name, pv.Status.Phase, deletion(&pv),
			pv.Spec.PersistentVolumeReclaimPolicy, owner, annotationsOf(&pv), strings.Join(pv.Spec.MountOptions, ","))
	}
}

func (e *Env) dumpNamespace(ctx context.Context, text io.Writer, namespace string) {
	core := e.Client.CoreV1()
	claims, err1 := core.PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{})
	jobs, err2 := e.Client.BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{})
	pods, err3 := core.Pods(namespace).List(ctx, metav1.ListOptions{})
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			fmt.Fprintf(text, "namespace %s: %v\n", namespace, err)
			return
		}
	}
	for _, claim := range claims.Items {
		fmt.Fprintf(text, "claim\t%s/%s\t%s%s\t%s\t%s\t%s\n", namespace, claim.Name, claim.Status.Phase, deletion(&claim), claim.UID, claim.Spec.VolumeName, annotationsOf(&claim))
	}
	for _, job := range jobs.Items {
		fmt.Fprintf(text, "job\t%s/%s\t%s%s\t%s\n", namespace, job.Name, conditions(&job), deletion(&job), annotationsOf(&job))
	}
	for _, pod := range pods.Items {
		fmt.Fprintf(text, "pod\t%s/%s\t%s%s\ton %q\t%s\n", namespace, pod.Name, pod.Status.Phase, deletion(&pod), pod.Spec.NodeName, containerState(&pod))
	}
}

// deletion returns a note that an object is being deleted, and the names of its finalizers.
func deletion(object metav1.Object) string {
	text := ""
	if object.GetDeletionTimestamp() != nil {
		text = " and Terminating"
	}
	if finalizers := object.GetFinalizers(); len(finalizers) > 0 {
		text += fmt.Sprintf(" %v", finalizers)
	}
	return text
}

// annotationsOf returns the annotations as JSON, without the copy that kubectl apply keeps.
func annotationsOf(object metav1.Object) string {
	annotations := maps.Clone(object.GetAnnotations())
	maps.DeleteFunc(annotations, func(key, _ string) bool { return strings.Contains(key, "last-applied") })
	if len(annotations) == 0 {
		return ""
	}
	text, err := json.Marshal(annotations)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func conditions(job *batchv1.Job) string {
	state := "no condition"
	for _, condition := range job.Status.Conditions {
		state = fmt.Sprintf("%s=%s (%s)", condition.Type, condition.Status, condition.Reason)
	}
	return state
}

func containerState(pod *corev1.Pod) string {
	for _, status := range pod.Status.ContainerStatuses {
		switch {
		case status.State.Waiting != nil:
			return "waits: " + status.State.Waiting.Reason
		case status.State.Terminated != nil:
			return fmt.Sprintf("ended: %d %s", status.State.Terminated.ExitCode, status.State.Terminated.Message)
		}
	}
	return ""
}

func (e *Env) dumpEvents(ctx context.Context, text io.Writer, namespace string) {
	events, err := e.Client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		fmt.Fprintf(text, "events of %s: %v\n", namespace, err)
		return
	}
	for _, event := range events.Items {
		fmt.Fprintf(text, "event in %s: %s %s of %s %s: %s\n", namespace, event.Type, event.Reason, event.InvolvedObject.Kind, event.InvolvedObject.Name, event.Message)
	}
}

// dumpTree lists the files of a file system, those of the ledger with their content.
func dumpTree(text io.Writer, id, folder string) {
	fmt.Fprintf(text, "file system %s:\n", id)
	err := filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below := "/" + strings.TrimPrefix(strings.TrimPrefix(name, folder), "/")
		content := ""
		if entry.Type().IsRegular() && strings.HasPrefix(below, wellknown.StateDirectory) {
			data, err := os.ReadFile(name)
			content = fmt.Sprintf(" %s", data[:min(len(data), 512)])
			if err != nil {
				content = " " + err.Error()
			}
		}
		fmt.Fprintf(text, "  %s %s%s\n", entry.Type(), below, strings.TrimRight(content, "\n"))
		return nil
	})
	if err != nil { // it changes while it is walked
		fmt.Fprintf(text, "  %v\n", err)
	}
}
