//go:build integration

package integration_test

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// exampleClaims creates the classes and claims of a file in examples, with classes of the test's own provisioner.
func (f *fixture) exampleClaims(name string) (claims []*corev1.PersistentVolumeClaim) {
	f.Helper()
	text, err := os.ReadFile("../../examples/" + name)
	f.check(err)
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var header metav1.TypeMeta
		f.check(yaml.Unmarshal([]byte(document), &header))
		switch header.Kind {
		case "StorageClass":
			var class storagev1.StorageClass
			f.check(yaml.UnmarshalStrict([]byte(document), &class))
			class.Name, class.Provisioner = f.Named(class.Name), f.Provisioner
			_, err := f.Client.StorageV1().StorageClasses().Create(f.Context(), &class, metav1.CreateOptions{})
			f.check(err)
		case "PersistentVolumeClaim":
			var claim corev1.PersistentVolumeClaim
			f.check(yaml.UnmarshalStrict([]byte(document), &claim))
			class := f.Named(*claim.Spec.StorageClassName)
			claim.Spec.StorageClassName = &class
			created, err := f.claims(f.Team).Create(f.Context(), &claim, metav1.CreateOptions{})
			f.check(err)
			claims = append(claims, created)
		}
	}
	if len(claims) == 0 {
		f.Fatalf("%s has no claim", name)
	}
	return claims
}

// TestExamplesShowWhatTheyPromise to the extent that volumes show it: pods are the lab's. Late binding needs a
// scheduler, and a restore the uid of a claim that was deleted.
func TestExamplesShowWhatTheyPromise(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	f.NewClass(wellknown.StorageClass, nil)
	served := func(name string) provisioned {
		t.Helper()
		return f.waitForProvisioned(f.exampleClaims(name)[0])
	}
	first := served("claim.yaml")
	f.writeFile(first.path)
	if web := served("deployment.yaml"); web.path == first.path || web.volume.Spec.NFS.ReadOnly {
		t.Errorf("the Deployment's volume is %+v", web.volume.Spec.NFS)
	}
	if group := served("group.yaml"); group.volume.Annotations[wellknown.AnnotationGID] == "" {
		t.Errorf("the volume with a group has the annotations %v", group.volume.Annotations)
	}
	if readers := served("read-only.yaml"); readers.path != first.path || !readers.volume.Spec.NFS.ReadOnly {
		t.Errorf("readers have %s, read-only: %v; want %s", readers.path, readers.volume.Spec.NFS.ReadOnly, first.path)
	}
	if copied := served("clone.yaml"); copied.path == first.path {
		t.Errorf("the copy is its source, %s", copied.path)
	} else {
		f.expectFile(copied.path)
	}
}
