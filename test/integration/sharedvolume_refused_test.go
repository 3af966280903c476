//go:build integration

package integration_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/apis/v1alpha1"
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
