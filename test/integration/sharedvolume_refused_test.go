//go:build integration

package integration_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/apis/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// TestSharedVolumesThatTheAPIRefuses never reach the manager.
func TestSharedVolumesThatTheAPIRefuses(t *testing.T) {
	s := newSharing(t)
	s.install()
	point := s.accessPoint(1)
	tests := map[string]struct {
		spec v1alpha1.SharedVolumeSpec
		want string
	}{
		"neither":           {v1alpha1.SharedVolumeSpec{FileSystemID: "fs-1"}, "set one of accessPointID and path"},
		"both":              {v1alpha1.SharedVolumeSpec{FileSystemID: "fs-1", AccessPointID: point, Path: "/a"}, "set one of accessPointID and path"},
		"no file system":    {v1alpha1.SharedVolumeSpec{AccessPointID: point}, "spec.fileSystemID"},
		"a path upwards":    {v1alpha1.SharedVolumeSpec{FileSystemID: "fs-1", Path: "/a/../b"}, "components . and .."},
		"a path to nowhere": {v1alpha1.SharedVolumeSpec{FileSystemID: "fs-1", Path: "a"}, "spec.path"},
		"the whole":         {v1alpha1.SharedVolumeSpec{FileSystemID: "fs-1", Path: "/"}, "spec.path"},
		"an option":         {v1alpha1.SharedVolumeSpec{FileSystemID: "fs-1,port=1", AccessPointID: point}, "spec.fileSystemID"},
		"another id":        {v1alpha1.SharedVolumeSpec{FileSystemID: "fs-1", AccessPointID: "fsap-1/../x"}, "spec.accessPointID"},
		"a line":            {v1alpha1.SharedVolumeSpec{FileSystemID: "fs-1", AccessPointID: "fsap-1\nx"}, "spec.accessPointID"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := s.share(s.Team, "data", tt.spec); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	object := s.shared("data", v1alpha1.SharedVolumeSpec{AccessPointID: point})
	for _, change := range []string{`{"accessPointID":"fsap-2"}`, `{"iam":true}`, `{"readOnly":true}`, `{"accessPointID":null,"path":"/a"}`} {
		_, err := s.objects(s.Team).Patch(t.Context(), object.Name, types.MergePatchType, []byte(`{"spec":`+change+`}`), metav1.PatchOptions{})
		if err == nil || !strings.Contains(err.Error(), "delete it and make it anew with the other values; the data stays on the file system") {
			t.Errorf("%s: got %v", change, err)
		}
	}
}

// TestSharedVolumesThatTheManagerRefuses say why, and nothing is made of them.
func TestSharedVolumesThatTheManagerRefuses(t *testing.T) {
	s := newSharing(t)
	s.install()
	other := s.Named("other")
	s.NewNamespace(other)
	startManager(s.World, nil, s.withPaths())
	tests := map[string]struct {
		namespace, name, path string
		want                  string
	}{
		"a namespace without paths": {other, "data", "/data", "not allowed in namespace " + other + " by the manager's setting --shared-volume-paths"},
		"the ledger":                {s.Team, "ledger", "/.efs-stunnel/owners", "where no volume may be"},
		"an owner":                  {s.Team, "owner", "/a/@pvc-1", "starts with @"},
		"a control character":       {s.Team, "control", "/a\u0001b", "control character"},
		"a long name":               {s.Team, strings.Repeat("a", 250), "/data", "the name is too long"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			object, err := s.share(tt.namespace, tt.name, v1alpha1.SharedVolumeSpec{FileSystemID: s.fileSystem, Path: tt.path})
			s.check(err)
			s.told(s.await(object, v1alpha1.Failed, tt.want), wellknown.EventProvisioningFailed, tt.want)
			if p, err := s.pairOf(t.Context(), object); err == nil || p.volume != nil && p.volume.Name != "" {
				t.Errorf("there is %+v, error %v", p, err)
			}
			s.unshare(object)
			s.awaitUnshared(object)
		})
	}
}

// TestSharedVolumesOfAccessPointsThatAreWrong: EFS has the last word, also later.
func TestSharedVolumesOfAccessPointsThatAreWrong(t *testing.T) {
	s := newSharing(t)
	s.install()
	startManager(s.World, nil)
	object := s.shared("data", v1alpha1.SharedVolumeSpec{AccessPointID: "fsap-9"})
	s.told(s.await(object, v1alpha1.Failed, "access point fsap-9 does not exist"), wellknown.EventProvisioningFailed, "fsap-9")
	table, err := s.Table()
	if err != nil || len(table.Targets[s.fileSystem].AccessPoints) > 0 {
		t.Errorf("it got a port: %+v, %v", table, err)
	}
	put := func(fileSystem string, state efs.LifeCycleState) {
		s.EFS.PutAccessPoint(efs.AccessPoint{ID: "fsap-9", FileSystemID: fileSystem, State: state})
	}
	another := s.NewFileSystem()
	put(another, efs.Available)
	s.await(object, v1alpha1.Failed, "is one of file system "+another)
	put(s.fileSystem, efs.Creating)
	s.await(object, v1alpha1.Pending, "still being created")
	put(s.fileSystem, efs.Available)
	port := portOption(s.ready(object).volume)
	s.EFS.RemoveAccessPoint("fsap-9")
	s.await(object, v1alpha1.Failed, "access point fsap-9 does not exist")
	p, err := s.pairOf(t.Context(), object)
	if err != nil || portOption(p.volume) != port || p.claim.Status.Phase != corev1.ClaimBound {
		t.Errorf("got %+v, %v", p, err)
	}
	put(s.fileSystem, efs.Available)
	s.ready(object)
	s.unshare(object)
	s.awaitUnshared(object)
}

func TestSharedVolumeOfAFileSystemThatComesLater(t *testing.T) {
	s := newSharing(t)
	s.install()
	startManager(s.World, nil, s.withPaths())
	object := s.shared("data", v1alpha1.SharedVolumeSpec{FileSystemID: s.fileSystem[:len(s.fileSystem)-1] + "2", Path: "/data"})
	s.await(object, v1alpha1.Pending, "is not known")
	if id := s.NewFileSystem(); id != object.Spec.FileSystemID {
		t.Fatalf("the file system is %s", id)
	}
	s.ready(object)
}

// TestSharedVolumesDoNotTakeNames that are somebody else's.
func TestSharedVolumesDoNotTakeNames(t *testing.T) {
	s := newSharing(t)
	s.install()
	longer := s.Team + "-a"
	s.NewNamespace(longer)
	startManager(s.World, nil)
	point := s.accessPoint(1)
	first := s.shared("a-b", v1alpha1.SharedVolumeSpec{AccessPointID: point})
	p := s.ready(first)
	second, err := s.share(longer, "b", v1alpha1.SharedVolumeSpec{FileSystemID: s.fileSystem, AccessPointID: point})
	s.check(err)
	s.await(second, v1alpha1.Failed, p.volume.Name+" is that of SharedVolume "+s.Team+"/a-b")
	s.unshare(second)
	s.Eventually("the second is gone", func(ctx context.Context) error {
		_, err := s.get(ctx, second)
		return wantNotFound(err)
	})
	if now := s.ready(first); now.volume.UID != p.volume.UID {
		t.Error("the first one's volume was replaced")
	}
	claim := s.NewClaim("pvc-c", s.NewClass("efs", nil).Name)
	third := s.shared("c", v1alpha1.SharedVolumeSpec{AccessPointID: point})
	s.await(third, v1alpha1.Failed, "pvc-c exists and was not made for this SharedVolume")
	s.AwaitBound(claim)
	s.check(s.Client.CoreV1().PersistentVolumeClaims(s.Team).Delete(t.Context(), claim.Name, metav1.DeleteOptions{}))
	s.ready(third)
}
