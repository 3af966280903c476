package world

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

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// Story is the state of the world, for people: its objects, what happened to them, and what is
// on the file systems, the ledger included.
func (w *World) Story() string {
	var text strings.Builder
	ctx := context.WithoutCancel(w.Context())
	w.tellTable(ctx, &text)
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	w.tellVolumes(ctx, table)
	for _, namespace := range w.namespaces {
		w.tellNamespace(ctx, table, namespace)
	}
	_ = table.Flush() // a Builder takes everything
	for _, namespace := range append(slices.Clone(w.namespaces), metav1.NamespaceDefault) {
		w.tellEvents(ctx, &text, namespace)
	}
	for _, run := range w.Kubelet.Runs() {
		fmt.Fprintf(&text, "run of %s on %s: exit code %d\n%s\n%s", run.Pod, run.Node, run.ExitCode, run.Message, run.Log)
	}
	for _, id := range w.fileSystems() {
		tellTree(&text, id, w.Folder(id))
	}
	return text.String()
}

func (w *World) tellTable(ctx context.Context, text io.Writer) {
	object, err := w.Client.CoreV1().ConfigMaps(w.Namespace).Get(ctx, wellknown.TargetsConfigMap, metav1.GetOptions{})
	if err != nil {
		fmt.Fprintf(text, "table: %v\n", err)
		return
	}
	fmt.Fprintf(text, "table:\n%s\n", object.Data[wellknown.TargetsKey])
}

func (w *World) tellVolumes(ctx context.Context, text io.Writer) {
	found, err := w.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		fmt.Fprintf(text, "volumes: %v\n", err)
		return
	}
	for _, pv := range found.Items {
		owner := "nobody"
		if ref := pv.Spec.ClaimRef; ref != nil {
			owner = fmt.Sprintf("%s/%s (%s)", ref.Namespace, ref.Name, ref.UID)
		}
		fmt.Fprintf(text, "volume\t%s\t%s%s\t%s\tfor %s\t%s\t%s\n", pv.Name, pv.Status.Phase, leaving(&pv),
			pv.Spec.PersistentVolumeReclaimPolicy, owner, notes(&pv), strings.Join(pv.Spec.MountOptions, ","))
	}
}

func (w *World) tellNamespace(ctx context.Context, text io.Writer, namespace string) {
	core := w.Client.CoreV1()
	claims, err1 := core.PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{})
	jobs, err2 := w.Client.BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{})
	pods, err3 := core.Pods(namespace).List(ctx, metav1.ListOptions{})
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			fmt.Fprintf(text, "namespace %s: %v\n", namespace, err)
			return
		}
	}
	for _, claim := range claims.Items {
		fmt.Fprintf(text, "claim\t%s/%s\t%s%s\t%s\t%s\t%s\n", namespace, claim.Name, claim.Status.Phase, leaving(&claim), claim.UID, claim.Spec.VolumeName, notes(&claim))
	}
	for _, job := range jobs.Items {
		fmt.Fprintf(text, "job\t%s/%s\t%s%s\t%s\n", namespace, job.Name, conditions(&job), leaving(&job), notes(&job))
	}
	for _, pod := range pods.Items {
		fmt.Fprintf(text, "pod\t%s/%s\t%s%s\ton %q\t%s\n", namespace, pod.Name, pod.Status.Phase, leaving(&pod), pod.Spec.NodeName, containerState(&pod))
	}
}

// leaving says that an object is being deleted, and what holds it.
func leaving(object metav1.Object) string {
	text := ""
	if object.GetDeletionTimestamp() != nil {
		text = " and Terminating"
	}
	if finalizers := object.GetFinalizers(); len(finalizers) > 0 {
		text += fmt.Sprintf(" %v", finalizers)
	}
	return text
}

// notes are the annotations that somebody may have to know.
func notes(object metav1.Object) string {
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

func (w *World) tellEvents(ctx context.Context, text io.Writer, namespace string) {
	events, err := w.Client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		fmt.Fprintf(text, "events of %s: %v\n", namespace, err)
		return
	}
	for _, event := range events.Items {
		fmt.Fprintf(text, "event in %s: %s %s of %s %s: %s\n", namespace, event.Type, event.Reason, event.InvolvedObject.Kind, event.InvolvedObject.Name, event.Message)
	}
}

// tellTree lists a file system; files of the ledger are short, and shown whole.
func tellTree(text io.Writer, id, folder string) {
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
