package collect

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/plugin/inspect"
)

const (
	// planted is in no secret's place by its name alone: AWS keys have a form.
	planted = "AKIAPLANTEDPLANTED12"
	// hidden has no form: only the name of its place says that it is a credential.
	hidden  = "hidden-in-plain-sight"
	account = "123456789012"
	fsID    = "fs-0123456789abcdef0"
)

var now = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// meta has secrets in annotations and labels.
func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(now),
		Labels: map[string]string{"db-password": hidden, "note": planted},
		Annotations: map[string]string{
			corev1.LastAppliedConfigAnnotation:         `{"env":[{"name":"X","value":"` + hidden + `"}]}`,
			"vault.example.com/anything":               hidden,
			wellknown.AnnotationRejectReason:           "refused " + planted,
			"example.kubernetes.io/password":           hidden,
			"eks.amazonaws.com/role-arn":               "arn:aws:iam::" + account + ":role/x",
			"efs-stunnel.gnuthought.com/first-claim":   "team/kept-annotation",
			"pv.kubernetes.io/bound-by-controller":     "yes",
			"notgnuthought.com/anything":               hidden,
			"kubectl.kubernetes.io/restartedAt":        "2026",
			"volume.kubernetes.io/storage-provisioner": "p",
		},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: hidden}},
	}
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{
		Name: "agent", Image: account + ".dkr.ecr.us-east-1.amazonaws.com/efs-stunnel:1.2",
		Args:    []string{"--token=" + hidden, "--password", hidden, "--aws-region", "us-east-1", "--x=" + planted},
		Command: []string{"/bin/x", "--api-key", hidden},
		Env: []corev1.EnvVar{
			{Name: "DB_PASSWORD", Value: hidden}, {Name: "NOTE", Value: planted}, {Name: "HTTPS_PROXY", Value: "http://u:" + hidden + "@proxy:1"},
			{Name: "AWS_REGION", Value: "us-east-1"},
			{Name: "FROM", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "kept-key"}}},
		},
	}}}
}

// snapshot returns an installation with secrets in every place that text is in.
func snapshot() *inspect.Snapshot {
	s := &inspect.Snapshot{Namespace: wellknown.Namespace, Provisioner: wellknown.DefaultProvisioner, Now: now}
	template := corev1.PodTemplateSpec{ObjectMeta: meta("", ""), Spec: podSpec()}
	s.Manager = &appsv1.Deployment{ObjectMeta: meta(s.Namespace, "efs-manager"), Spec: appsv1.DeploymentSpec{Template: template}}
	s.Agents = &appsv1.DaemonSet{ObjectMeta: meta(s.Namespace, "efs-stunnel"), Spec: appsv1.DaemonSetSpec{Template: template}}
	s.Table = &corev1.ConfigMap{ObjectMeta: meta(s.Namespace, wellknown.TargetsConfigMap), Data: map[string]string{
		wellknown.TargetsKey: "account_and_region: " + account + "/us-east-1\npassword: " + hidden + "\n", "token": hidden,
	}}
	agent := &corev1.Pod{ObjectMeta: meta(s.Namespace, "agent-n1"), Spec: podSpec()}
	agent.Labels = mountjobs.AgentLabels()
	agent.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "agent", RestartCount: 1,
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "panic: password=" + hidden}},
	}}
	foreignPod := &corev1.Pod{ObjectMeta: meta(s.Namespace, "foreign-pod"), Status: agent.Status}
	s.Pods = []*corev1.Pod{agent, foreignPod}
	s.Jobs = []*batchv1.Job{{ObjectMeta: meta(s.Namespace, "foreign-job"), Spec: batchv1.JobSpec{Template: template}}}
	class := "efs"
	s.Classes = []*storagev1.StorageClass{
		{ObjectMeta: meta("", class), Provisioner: s.Provisioner, Parameters: map[string]string{"secret": hidden, "base_path": "/kept-path"}},
		{ObjectMeta: meta("", "foreign-class"), Provisioner: "other"},
	}
	s.Claims = []*corev1.PersistentVolumeClaim{
		{ObjectMeta: meta("team", "data"), Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class}},
		{ObjectMeta: meta("team", "foreign-claim")},
	}
	delete(s.Claims[1].Annotations, wellknown.AnnotationStorageProvisioner)
	s.Volumes = []*corev1.PersistentVolume{
		{ObjectMeta: meta("", "pv-1"), Spec: corev1.PersistentVolumeSpec{StorageClassName: wellknown.RootStorageClass}},
		{ObjectMeta: meta("", "foreign-volume")},
	}
	s.SharedVolumes = []*v1alpha1.SharedVolume{{TypeMeta: metav1.TypeMeta{Kind: v1alpha1.SharedVolumeKind}, ObjectMeta: meta("team", "reports"), Status: v1alpha1.SharedVolumeStatus{Message: "token=" + hidden}}}
	s.Nodes = []*corev1.Node{{ObjectMeta: meta("", "n1"), Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Message: "kept-condition " + planted}},
		NodeInfo:   corev1.NodeSystemInfo{OSImage: "Bottlerocket", MachineID: "machine-id"},
	}}}
	s.Events = []corev1.Event{
		{ObjectMeta: meta("team", "e1"), InvolvedObject: corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "team", Name: "data"}, Message: "kept-event " + planted + " password: " + hidden},
		{ObjectMeta: meta("team", "e2"), InvolvedObject: corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "team", Name: "foreign-claim"}},
	}
	return s
}

func collected(t *testing.T, s *inspect.Snapshot, accounts bool, read logReader) *Archive {
	t.Helper()
	archive, err := Collect(t.Context(), fake.NewClientset(), Options{Snapshot: s, RedactAccounts: accounts, Progress: func(string) {}, read: read})
	if err != nil || strings.Contains(archive.index(), "one of the ") {
		t.Fatalf("%v, or an object is left out:\n%s", err, archive.index())
	}
	return archive
}

// logText returns the log of every container.
func logText(text string) logReader {
	return func(_ context.Context, _, pod string, o *corev1.PodLogOptions) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(fmt.Sprintf("%s %s %v: %s", pod, o.Container, o.Previous, text))), nil
	}
}

// unpack reads what Write wrote.
func unpack(t *testing.T, a *Archive) (names []string, all string) {
	t.Helper()
	var packed bytes.Buffer
	if err := a.Write(&packed); err != nil {
		t.Fatal(err)
	}
	compressed, err := gzip.NewReader(&packed)
	if err != nil {
		t.Fatal(err)
	}
	for reader := tar.NewReader(compressed); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return names, all
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		names, all = append(names, header.Name), all+string(text)
	}
}

func TestNoSecretIsInTheArchive(t *testing.T) {
	logs := "kept-log " + planted + ` {"password":"` + hidden + `"} role arn:aws:iam::` + account + ":role/x"
	names, all := unpack(t, collected(t, snapshot(), true, logText(logs)))
	for _, secret := range []string{planted, hidden, account, "machine-id", "managedFields"} {
		for line := range strings.Lines(all) {
			if strings.Contains(line, secret) {
				t.Errorf("%s is in: %s", secret, line)
			}
		}
	}
	for _, want := range []string{
		"kept-annotation", "kept-key", "kept-path", "kept-condition", "kept-event", "kept-log", "us-east-1", "Bottlerocket",
		"kind: Deployment", "kind: DaemonSet", "kind: ConfigMap", "kind: Pod", "kind: StorageClass", "kind: PersistentVolumeClaim",
		"kind: PersistentVolume\n", "kind: SharedVolume", "kind: Node", "kind: Event", "efs-stunnel in namespace", "the installation: ",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not in the archive, which has %q", want, names)
		}
	}
	for _, foreign := range []string{"foreign-pod", "foreign-job", "foreign-class", "foreign-claim", "foreign-volume"} {
		if strings.Contains(all, foreign) {
			t.Errorf("%s is in the archive", foreign)
		}
	}
}

// TestHostileTextInTheArchiveIsHarmless: file names are in logs, and whoever reads an archive does so in a terminal.
func TestHostileTextInTheArchiveIsHarmless(t *testing.T) {
	evil := "dir/\x1b[2J\x9b31m\r\u202e\xff" + strings.Repeat("y", 240)
	s := snapshot()
	s.Events[0].Message, s.SharedVolumes[0].Status.Message = evil, evil
	s.Claims[0].Annotations[wellknown.AnnotationRejectReason] = evil
	s.Table.Data[wellknown.TargetsKey] = evil
	_, all := unpack(t, collected(t, s, false, logText("first\n"+evil+"\nlast\n")))
	if strings.ContainsAny(all, "\x1b\u009b\r\u202e") || !utf8.ValidString(all) {
		t.Errorf("control characters are in the archive: %q", all)
	}
	if !strings.Contains(all, "first\ndir/?[2J?31m???yyy") || !strings.Contains(all, "yyy\nlast\n") {
		t.Errorf("the log's lines are not there: %q", all)
	}
}

func TestArchiveBeginsWithItsIndex(t *testing.T) {
	archive := collected(t, snapshot(), false, logText("x"))
	names, all := unpack(t, archive)
	if names[0] != "efs-stunnel-20260102T120000Z/README.txt" || archive.Name() != "efs-stunnel-20260102T120000Z.tar.gz" {
		t.Errorf("files %q, name %s", names, archive.Name())
	}
	for _, want := range []string{"logs/agent-n1/agent.log", "logs/agent-n1/agent.previous.log", "objects/claims.yaml", "status.txt"} {
		if !slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, "/"+want) }) {
			t.Errorf("%s is not among %q", want, names)
		}
		if !strings.Contains(all[:strings.Index(all, "\nNot read")], want) {
			t.Errorf("%s is not in the index", want)
		}
	}
	if !strings.Contains(all, account) {
		t.Error("accounts are replaced, although that was not requested")
	}
}

func TestSnapshotIsNotChanged(t *testing.T) {
	s := snapshot()
	_ = collected(t, s, true, logText("x"))
	if got := s.Agents.Spec.Template.Spec.Containers[0].Env[0].Value; got != hidden || len(s.Table.ManagedFields) == 0 {
		t.Errorf("the variable is %q now", got)
	}
}

func TestWhatCannotBeReadIsSaid(t *testing.T) {
	tests := map[string]struct {
		err    error
		unread bool // a right is missing
		want   string
	}{
		"no right":      {apierrors.NewForbidden(schema.GroupResource{Resource: "pods/log"}, "", nil), true, "get pods/log in namespace efs-stunnel"},
		"not begun yet": {apierrors.NewBadRequest("container is waiting to start, token=" + hidden + "\x1b"), false, "agent.log: container is waiting to start, token=(removed)"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			calls := 0
			archive := collected(t, snapshot(), false, func(context.Context, string, string, *corev1.PodLogOptions) (io.ReadCloser, error) {
				calls++
				return nil, tt.err
			})
			_, all := unpack(t, archive)
			if !strings.Contains(all, tt.want) || (len(archive.Unread) > 0) != tt.unread || strings.Contains(all, "\x1b") {
				t.Errorf("unread %q, %d calls:\n%s", archive.Unread, calls, archive.index())
			}
			if tt.unread && calls > 1 {
				t.Errorf("asked %d times for what is forbidden", calls)
			}
		})
	}
}

func TestLogsAreBounded(t *testing.T) {
	s := snapshot()
	for i := range 2 * mostAgents {
		pod := s.Pods[0].DeepCopy()
		pod.Name = fmt.Sprintf("agent-%02d", i)
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		s.Pods = append(s.Pods, pod)
	}
	long := strings.Repeat("x", mostOfOne+1)
	total, first := 0, ""
	archive := collected(t, s, false, func(_ context.Context, _, pod string, o *corev1.PodLogOptions) (io.ReadCloser, error) {
		if first == "" {
			first = pod
		}
		if o.TailLines == nil || *o.TailLines != mostLines || *o.LimitBytes != mostOfOne {
			t.Errorf("options %+v", o)
		}
		total++
		return io.NopCloser(strings.NewReader(long)), nil
	})
	if total > mostLogs/mostOfOne || total > 2*mostAgents || first != "agent-n1" {
		t.Errorf("%d logs, the first of %s", total, first)
	}
	for _, f := range archive.files {
		if len(f.text) > mostOfOne {
			t.Errorf("%s has %d bytes", f.name, len(f.text))
		}
	}
	for _, want := range []string{"21 of 41 agents' logs", "the archive has 64 MiB of logs"} {
		if !strings.Contains(archive.index(), want) {
			t.Errorf("%q is not in the index:\n%s", want, archive.index())
		}
	}
}

func TestCollectEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	client := fake.NewClientset()
	if _, err := Collect(ctx, client, Options{Snapshot: snapshot(), Progress: func(string) {}}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
