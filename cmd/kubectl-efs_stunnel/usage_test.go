package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

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

// cluster has a claim of 1 GiB with its volume, and the root claim of their file system.
func withClaim() *fake.Clientset {
	const id = "fs-0123456789abcdef0"
	root := volumes.RootClaim(id, wellknown.Namespace)
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
		counted := volumes.UsageRecord{Bytes: 1 << 20, Files: 3, At: time.Now()}.Encode()
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

func TestUsageNowSaysWhatFailed(t *testing.T) {
	client := withClaim()
	answer(client, func() error {
		event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: wellknown.Namespace, Name: "failed", CreationTimestamp: metav1.Now()}}
		event.InvolvedObject = corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: wellknown.Namespace, Name: volumes.RootName("fs-0123456789abcdef0")}
		event.Reason, event.Message, event.Source.Component = wellknown.EventSurveyFailed, "Job x has counted no volume: killed", "efs-stunnel"
		return client.Tracker().Add(event)
	})
	if got := invoke(t, client, "usage", "--now"); got.code != exitUnknown || !strings.Contains(got.stderr, "killed") {
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
