//go:build integration

package integration_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// reading has a claim of another namespace read one of the team.
func (f *fixture) reading(namespace, reads string) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) {
		claim.Namespace, claim.Annotations = namespace, map[string]string{wellknown.AnnotationReads: reads}
		claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
	}
}

// newSharing returns a fixture with a class that shares, a claim of the team with a file, and a namespace beside it.
func newSharing(t *testing.T) (f *fixture, owner *corev1.PersistentVolumeClaim, path, web string) {
	t.Helper()
	f = newFixtureWithManager(t)
	f.class = f.NewClass("sharing", map[string]string{"share_read_only": "true"}).Name
	web = f.Named("web")
	f.NewNamespace(web)
	owner = f.createClaim("reports", withVolumeName("reports"))
	path = f.waitForBound(owner).Spec.NFS.Path
	f.writeFile(path)
	return f, owner, path, web
}

func (f *fixture) letRead(owner *corev1.PersistentVolumeClaim, namespaces any) {
	f.Helper()
	f.annotate(owner, map[string]any{wellknown.AnnotationReaders: namespaces})
}

func TestClaimOfAnotherNamespaceReads(t *testing.T) {
	t.Parallel()
	f, owner, path, web := newSharing(t)
	f.letRead(owner, web)
	reader := f.NewClaim("reader", f.class, f.reading(web, f.Team+"/reports"))
	volume := f.waitForBound(reader)
	if volume.Spec.NFS.Path != path || !volume.Spec.NFS.ReadOnly || !slices.Contains(volume.Spec.MountOptions, "ro") {
		t.Errorf("the volume is %+v", volume.Spec)
	}

	f.letRead(owner, nil)
	late := f.NewClaim("late", f.class, f.reading(web, f.Team+"/reports"))
	f.waitForRejection(late, "cannot be read from here")
	if _, err := f.volumes().Get(t.Context(), volume.Name, metav1.GetOptions{}); err != nil {
		t.Errorf("the reader that was there: %v", err)
	}
	f.deleteClaims(reader)
	f.WaitForVolumeDeleted(reader)
	f.expectFile(path)

	f.letRead(owner, web)
	f.annotate(late, map[string]any{"example.com/sync": "now"}) // or it is looked at again in a minute
	f.waitForBound(late)
	last := f.NewClaim("last", f.class, f.reading(web, f.Team+"/reports"))
	f.waitForBound(last)
	f.deleteClaims(owner)
	f.WaitForVolumeDeleted(owner)
	f.expectFile(path)
	f.deleteClaims(last, late) // which has what it waits for since the owner consents again
	f.waitForCleanup(last, late)
}

func TestReaderWithoutConsentGetsNothing(t *testing.T) {
	t.Parallel()
	f, owner, path, web := newSharing(t)
	plain := f.NewClass("plain", nil).Name
	reads := f.Team + "/reports"
	stranger := f.NewClaim("stranger", f.class, f.reading(web, reads))
	f.waitForRejection(stranger, "cannot be read from here", wellknown.AnnotationReaders)
	f.deleteClaims(stranger) // or it would read as soon as the owner consents, and it is looked at again
	f.letRead(owner, web)
	writes := func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	}
	f.waitForRejection(f.NewClaim("writer", f.class, f.reading(web, reads), writes), "ReadOnlyMany only")
	f.waitForRejection(f.NewClaim("plain", plain, f.reading(web, reads)), "share_read_only")
	for name, hostile := range map[string]string{"up": "../" + reads, "inside": f.Team + "/../" + web, "absolute": "/" + reads, "root": f.Team + "/."} {
		f.waitForRejection(f.NewClaim(name, f.class, f.reading(web, hostile)), "write the namespace and the name of a claim")
	}

	// A reader cannot pass on what it reads: what it may edit itself does not count.
	reader := f.NewClaim("reader", f.class, f.reading(web, reads))
	f.waitForBound(reader)
	third := f.Named("third")
	f.NewNamespace(third)
	f.annotate(reader, map[string]any{wellknown.AnnotationReads: nil, wellknown.AnnotationReaders: third})
	f.waitForRejection(f.NewClaim("third", f.class, f.reading(third, web+"/reader")), "cannot be read from here")
	if owners := f.owners()[path]; len(owners) != 2 {
		t.Errorf("the ledger has %q for %s\n%s", owners, path, f.Dump())
	}
	f.expectFile(path)
}
