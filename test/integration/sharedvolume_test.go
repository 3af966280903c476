//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/apis/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// TestSharedVolumeOfAPath is what everything else is a deviation from.
func TestSharedVolumeOfAPath(t *testing.T) {
	s := newSharing(t)
	s.install()
	s.file("data")
	startManager(s.World, nil, s.withPaths())
	object := s.shared("one", v1alpha1.SharedVolumeSpec{Path: "/data", ReadOnly: true})
	p := s.ready(object)
	spec := p.volume.Spec
	if spec.NFS == nil || spec.NFS.Server != "127.0.0.1" || spec.NFS.Path != "/data" || !spec.NFS.ReadOnly || !slices.Contains(spec.MountOptions, "ro") {
		t.Errorf("the volume has %+v and the options %q", spec.NFS, spec.MountOptions)
	}
	if spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain || spec.StorageClassName != "" || portOption(p.volume) != fmt.Sprintf("port=%d", wellknown.DefaultBasePort) {
		t.Errorf("the volume is %+v", spec)
	}
	got := s.await(object, v1alpha1.Ready, "").Status
	if got.ClaimRef == nil || got.ClaimRef.Name != "pvc-one" || got.ObservedGeneration != 1 || got.Message != "" || len(got.Conditions) != 1 {
		t.Errorf("the status is %+v", got)
	}
	s.told(object, wellknown.EventProvisioningSucceeded, "pvc-one")
	s.unshare(object)
	s.awaitUnshared(object)
	s.wantFile("data")
}

// TestSharedVolumesOfOneAccessPoint: they share its tunnel, in whatever namespaces they are.
func TestSharedVolumesOfOneAccessPoint(t *testing.T) {
	s := newSharing(t)
	s.install()
	other := s.Named("other")
	s.NewNamespace(other)
	startManager(s.World, nil)
	point := s.accessPoint(1)
	spec := v1alpha1.SharedVolumeSpec{FileSystemID: s.fileSystem, AccessPointID: point, IAM: true}
	one := s.shared("data", spec)
	two, err := s.share(other, "data", spec)
	s.check(err)
	port := portOption(s.ready(one).volume)
	p := s.ready(two)
	if got := portOption(p.volume); got != port || port == fmt.Sprintf("port=%d", wellknown.DefaultBasePort) {
		t.Errorf("the volumes have %s and %s", port, got)
	}
	if p.volume.Spec.NFS.Path != "/" || p.volume.Spec.NFS.ReadOnly {
		t.Errorf("got %+v", p.volume.Spec.NFS)
	}
	table, err := s.Table()
	s.check(err)
	target := table.Targets[s.fileSystem]
	if is := target.AccessPoints[point]; fmt.Sprintf("port=%d", is.Port) != port || !is.IAM || target.IAM {
		t.Errorf("the table has %+v, the volume %s", target, port)
	}
	s.unshare(one)
	s.awaitUnshared(one)
	if table, err = s.Table(); err != nil || len(table.Targets[s.fileSystem].AccessPoints) != 1 {
		t.Errorf("the other's tunnel went, too: %+v, %v", table, err)
	}
	s.unshare(two)
	s.awaitUnshared(two)
	s.Eventually("the port is given back", func(context.Context) error {
		table, err := s.Table() //nolint:contextcheck // it has the test's
		if err == nil && len(table.Targets[s.fileSystem].AccessPoints) > 0 {
			err = fmt.Errorf("the table has %+v", table.Targets)
		}
		return err
	})
}

// TestSharedVolumesAPIComesAndGoes: the manager serves it while it is there.
func TestSharedVolumesAPIComesAndGoes(t *testing.T) {
	s := newSharing(t)
	startManager(s.World, nil)
	class := s.NewClass("efs", nil)
	s.AwaitBound(s.NewClaim("before", class.Name))
	for round := range 2 {
		s.install()
		object := s.shared("data", v1alpha1.SharedVolumeSpec{AccessPointID: s.accessPoint(round)})
		s.ready(object)
		s.uninstall()
		s.awaitUninstalled()
		_, err := s.Client.CoreV1().PersistentVolumeClaims(s.Team).Get(t.Context(), "pvc-data", metav1.GetOptions{})
		if err := wantNotFound(err); err != nil {
			t.Errorf("the claim outlives the API: %v", err)
		}
	}
	s.AwaitBound(s.NewClaim("after", class.Name))
}
