package inspect

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// withShared adds SharedVolume team/reports, which was created five minutes ago.
func withShared(s *Snapshot, phase v1alpha1.Phase, reason, message string) *v1alpha1.SharedVolume {
	shared := &v1alpha1.SharedVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "reports", CreationTimestamp: ago(5 * time.Minute)},
		Spec:       v1alpha1.SharedVolumeSpec{FileSystemID: testFS, AccessPointID: "fsap-1"},
		Status: v1alpha1.SharedVolumeStatus{Phase: phase, Message: message, Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionReady, Reason: reason},
		}},
	}
	s.SharedVolumes = append(s.SharedVolumes, shared)
	return shared
}

func TestSharedVolumes(t *testing.T) {
	tests := map[string]struct {
		edit func(*Snapshot)
		want expectation
	}{
		"ready": {func(s *Snapshot) { withShared(s, v1alpha1.Ready, "Bound", "") }, expectation{"", OK, ""}},
		"ready, and a pod waits for its mount": {func(s *Snapshot) {
			withShared(s, v1alpha1.Ready, "Bound", "")
			pod := userOf(s, "pvc-reports")
			addEvent(s, "kubelet", corev1.ObjectReference{Kind: "Pod", Namespace: "team", Name: pod.Name}, "FailedMount", "timed out", time.Minute)
		}, expectation{"", Problem, PodsWaitForMount}},
		"failed": {func(s *Snapshot) {
			withShared(s, v1alpha1.Failed, "AccessPointUnusable", "it is of another file system")
		}, expectation{"", Problem, "AccessPointUnusable"}},
		"waits for long": {func(s *Snapshot) {
			withShared(s, v1alpha1.Pending, "FileSystemUnknown", "not known")
		}, expectation{"", Problem, "FileSystemUnknown"}},
		"waits for long without a condition": {func(s *Snapshot) {
			withShared(s, v1alpha1.Pending, "", "not known").Status.Conditions = nil
		}, expectation{"", Problem, SharedVolumeWaits}},
		"new": {func(s *Snapshot) {
			withShared(s, v1alpha1.Pending, "FileSystemUnknown", "not known").CreationTimestamp = ago(time.Second)
		}, expectation{"", Note, SharedVolumeWaits}},
		"new and failed": {func(s *Snapshot) {
			withShared(s, v1alpha1.Failed, "PathRefused", "no").CreationTimestamp = ago(time.Second)
		}, expectation{"", Problem, "PathRefused"}},
		"the manager is silent": {func(s *Snapshot) { withShared(s, "", "", "") }, expectation{"", Problem, ManagerSilent}},
		"deleted": {func(s *Snapshot) {
			deleted := ago(time.Minute)
			withShared(s, v1alpha1.Ready, "Bound", "").DeletionTimestamp = &deleted
		}, expectation{"", Note, SharedVolumeDeleted}},
		"is being deleted": {func(s *Snapshot) { withShared(s, v1alpha1.Deleting, "", "a pod uses it") }, expectation{"", Note, SharedVolumeDeleted}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := healthy(t)
			tt.edit(s)
			results := derive(s).checkSharedVolumes()
			if len(results) != 1 || results[0].Level != tt.want.level || results[0].Cause != tt.want.cause || results[0].Object != "sharedvolume team/reports" {
				t.Errorf("got %+v, want %+v", results, tt.want)
			}
			expect(t, s, expectation{"sharedvolume team/reports", tt.want.level, tt.want.cause})
			status := NewStatus(s)
			if shown := len(status.SharedVolumes) == 1; shown != (tt.want.level != OK) || status.SharedVolumeCount != 1 {
				t.Errorf("status has %d of %d", len(status.SharedVolumes), status.SharedVolumeCount)
			}
		})
	}
}

// userOf adds a pod that waits on node n1, with a claim.
func userOf(s *Snapshot, claim string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "user"}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	pod.Spec.NodeName = "n1"
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}}
	s.Users = append(s.Users, pod)
	return pod
}

// TestDoctorOfASharedVolume: by its name and by that of its claim, and with what it depends on only.
func TestDoctorOfASharedVolume(t *testing.T) {
	s := healthy(t)
	withShared(s, v1alpha1.Failed, "AccessPointUnusable", "it is of another file system")
	claim := newClaim("pvc-reports", "x")
	claim.Spec.StorageClassName, claim.Annotations = new(string), map[string]string{wellknown.AnnotationSharedVolume: "team/reports"}
	s.Claims = append(s.Claims, claim)
	userOf(s, claim.Name)
	for _, subject := range []Subject{subjectOf(KindSharedVolume, "reports"), subjectOf(KindClaim, "pvc-reports")} {
		d := Examine(s, subject)
		if d.Cause == nil || d.Cause.Cause != "AccessPointUnusable" || len(of(d.Checks, Problem)) != 1 {
			t.Errorf("%s: %+v", subject, d)
		}
		text := printed(t, "", d)
		if strings.Contains(text, "team/data") || !strings.Contains(text, "file systems    file system "+testFS) || !strings.Contains(text, "agents          node n1") {
			t.Errorf("%s:\n%s", subject, text)
		}
	}
	if d := Examine(s, subjectOf(KindSharedVolume, "other")); d.Cause == nil || d.Cause.Cause != SharedVolumeMissing {
		t.Errorf("one that does not exist: %+v", d)
	}
	if d := Examine(s, subjectOf(KindClaim, "data")); d.Level != OK {
		t.Errorf("another claim: %+v", d)
	}
}

func TestStatusCountsSharedVolumes(t *testing.T) {
	s := healthy(t)
	if text := printed(t, "", NewStatus(s)); strings.Contains(text, "SharedVolume") {
		t.Errorf("there is none:\n%s", text)
	}
	for range shownRows + 2 {
		withShared(s, v1alpha1.Failed, "PathRefused", "a path is not allowed here")
	}
	withShared(s, v1alpha1.Ready, "Bound", "")
	text := printed(t, "", NewStatus(s))
	for _, want := range []string{"SharedVolumes: 1 of 15 are ready", "team/reports   " + testFS + ": fsap-1", "… and 2 more"} {
		if !strings.Contains(text, want) {
			t.Errorf("it lacks %q:\n%s", want, text)
		}
	}
}

func dynamicWith(t *testing.T, shared ...*v1alpha1.SharedVolume) *dynamicfake.FakeDynamicClient {
	t.Helper()
	var objects []runtime.Object
	for _, object := range shared {
		item, err := object.ToUnstructured()
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, item)
	}
	return newDynamicClient(objects...)
}

func TestGatherReadsSharedVolumes(t *testing.T) {
	resource := schema.GroupResource{Group: v1alpha1.GroupName, Resource: v1alpha1.SharedVolumeResource}
	tests := map[string]struct {
		answer         error // to every request, if there is one
		wantRead       int
		wantUnreadable string
		wantErr        bool
	}{
		"all":                         {nil, 1, "", false},
		"the definition is not there": {apierrors.NewNotFound(resource, ""), 0, "", false},
		"no right":                    {apierrors.NewForbidden(resource, "", nil), 0, "list sharedvolumes.efs-stunnel.gnuthought.com in all namespaces", false},
		"no answer":                   {errors.New("connection refused"), 0, "", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := healthy(t)
			o := options()
			client := dynamicWith(t, withShared(s, v1alpha1.Ready, "Bound", ""))
			if tt.answer != nil {
				client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tt.answer })
			}
			o.Dynamic = client
			got, err := Gather(t.Context(), fake.NewClientset(objects(s)...), o)
			if tt.wantErr {
				if err == nil {
					t.Error("no error")
				}
				return
			}
			if err != nil || len(got.SharedVolumes) != tt.wantRead {
				t.Fatalf("%d SharedVolumes, %v", len(got.SharedVolumes), err)
			}
			if unread := strings.Join(NewStatus(got).Unread, "; "); (tt.wantUnreadable == "") != (unread == "") || !strings.Contains(unread, tt.wantUnreadable) {
				t.Errorf("unread %q", unread)
			}
		})
	}
}
