package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// withClaim has a claim of 1 GiB with its volume, and the root claim of their file system.
func withClaim() *fake.Clientset {
	const id = "fs-0123456789abcdef0"
	_, root := volumes.RootObjects(id, 0, wellknown.Namespace)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "data", Annotations: map[string]string{
		wellknown.AnnotationStorageProvisioner: wellknown.DefaultProvisioner,
	}}}
	claim.Spec.VolumeName = "pv"
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv", Annotations: map[string]string{
		wellknown.AnnotationProvisionedBy: wellknown.DefaultProvisioner, wellknown.AnnotationFileSystemID: id, wellknown.AnnotationPath: "/a",
	}}}
	return fake.NewClientset(root, claim, volume)
}

// answer has something happen when a root claim is patched, with the time of the request.
func answer(client *fake.Clientset, do func() error) {
	client.PrependReactor("patch", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, do()
	})
}

// annotate is for reactions, during which the client is locked.
func annotate(client *fake.Clientset, namespace, name, key, value string) error {
	claims := corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")
	object, err := client.Tracker().Get(claims, namespace, name)
	claim, ok := object.(*corev1.PersistentVolumeClaim)
	if err != nil || !ok {
		return fmt.Errorf("getting %s: %w", name, err)
	}
	claim = claim.DeepCopy()
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, key, value)
	return client.Tracker().Update(claims, claim, namespace)
}

func TestUsageNowWaitsForTheNumbers(t *testing.T) {
	client := withClaim()
	answer(client, func() error {
		finished := mountjobs.SurveyRecord{Began: time.Now(), Ended: time.Now()}.Encode()
		counted := mountjobs.UsageRecord{Bytes: 1 << 20, Files: 3, At: time.Now()}.Encode()
		return errors.Join(
			annotate(client, wellknown.Namespace, volumes.RootName("fs-0123456789abcdef0"), wellknown.AnnotationSurvey, finished),
			annotate(client, "team", "data", wellknown.AnnotationUsage, counted),
		)
	})
	before := invoke(t, client, "usage")
	if before.code != exitHealthy || !strings.Contains(before.stdout, "never") {
		t.Errorf("before: %+v", before)
	}
	after := invoke(t, client, "usage", "--now")
	if after.code != exitHealthy || !strings.Contains(after.stdout, "1.0 MiB") {
		t.Errorf("after: %+v", after)
	}
}

func TestUsageNowNamesTheRightThatIsMissing(t *testing.T) {
	client := withClaim()
	answer(client, func() error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumeclaims"}, "x", nil)
	})
	if got := invoke(t, client, "usage", "--now"); got.code != exitUnknown || !strings.Contains(got.stderr, "right to patch persistentvolumeclaims in namespace efs-stunnel") {
		t.Errorf("%+v", got)
	}
}

// TestUsageNowSaysWhatFailed: here the image of the Job.
func TestUsageNowSaysWhatFailed(t *testing.T) {
	client := withClaim()
	job, err := mountjobs.Build(mountjobs.Spec{
		Kind: mountjobs.Survey, Settings: mountjobs.Settings{Namespace: wellknown.Namespace, Image: "i"}, FileSystemID: "fs-0123456789abcdef0", Number: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	job.UID, job.CreationTimestamp = "job", metav1.NewTime(time.Now().Add(-time.Minute))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: job.Namespace, Name: job.Name + "-abcde", Labels: job.Spec.Template.Labels,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
	}, Spec: *job.Spec.Template.Spec.DeepCopy()}
	pod.Spec.NodeName = "n1"
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: mountjobs.ContainerName, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"}},
	}}
	if err := errors.Join(client.Tracker().Add(job), client.Tracker().Add(pod)); err != nil {
		t.Fatal(err)
	}
	answer(client, func() error { return nil })
	if got := invoke(t, client, "usage", "--now"); got.code != exitUnknown || !strings.Contains(got.stderr, "does not start: ") {
		t.Errorf("%+v", got)
	}
}

// TestUsageNowOfATenantFails: with a right to read claims of its own namespace only, nothing can be counted.
func TestUsageNowOfATenantFails(t *testing.T) {
	client := withClaim()
	client.PrependReactor("list", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if resource := action.GetResource(); action.GetNamespace() != "team" {
			return true, nil, apierrors.NewForbidden(resource.GroupResource(), "", nil)
		}
		return false, nil, nil
	})
	if got := invoke(t, client, "usage", "--now"); got.code != exitUnknown || !strings.Contains(got.stderr, "no right to list persistentvolumes in all namespaces, nor to list persistentvolumeclaims in namespace efs-stunnel") {
		t.Errorf("%+v", got)
	}
}

// TestLongSurveyIsRarelyLookedAt: each look reads all claims and volumes of the cluster.
func TestLongSurveyIsRarelyLookedAt(t *testing.T) {
	looks, delay := 0, surveyPoll.DelayFunc()
	for at := time.Duration(0); at < time.Hour; at += delay() {
		looks++
	}
	if first := surveyPoll.DelayFunc()(); looks > 140 || first > 2*time.Second {
		t.Errorf("%d looks in an hour, the second after %s; want at most 140, and 2s", looks, first)
	}
}
