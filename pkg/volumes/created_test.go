package volumes_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/volumes"
)

func TestCreatedSaysWhatMayBeUnexpected(t *testing.T) {
	const created = "created volume pvc-" + claimUID + ": directory /team/data-" + claimUID + " of file system fs-1"
	tests := map[string]struct {
		claim        func(*corev1.PersistentVolumeClaim)
		sharer, note string
		want         string // after created
	}{
		"nothing":                      {want: ""},
		"a note of the mount Job":      {note: "copied 5 files", want: "; copied 5 files"},
		"another claim with the files": {sharer: "data-web-0", want: ", which claim data-web-0 has, too"},
		"a claim for readers": {
			claim: func(c *corev1.PersistentVolumeClaim) {
				c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{"ReadOnlyMany"}
			},
			want: "; it is mounted read-only, because ReadOnlyMany is the claim's only access mode",
		},
		"labels that are settings": {claim: selecting(map[string]string{"file_system_id": "fs-1", "reclaim_policy": "Retain"})},
		"other labels": {
			claim: selecting(map[string]string{"reserved-for": "minio", "app": "x", "reclaim_policy": "Retain"}),
			want:  "; the selector's labels app=x,reserved-for=minio are only copied to it: a volume that has them and is created later is not waited for",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.claim == nil {
				tt.claim = func(*corev1.PersistentVolumeClaim) {}
			}
			class := parseClass(t, newClass(nil))
			operation := begin(t, parseClaim(t, newClaim(tt.claim), class), class, volumes.Choice{FileSystemID: "fs-1"})
			volume, err := volumes.FromOperation(operation, 20490, 0, provisioner)
			if err != nil {
				t.Fatal(err)
			}
			if got := volumes.Created(volume, tt.sharer, tt.note); got != created+tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, created+tt.want)
			}
			if got := volumes.Created(volume, tt.sharer, strings.Repeat("x", 2000)); len(got) > 1024 {
				t.Errorf("an event cannot hold %d bytes", len(got))
			}
		})
	}
}
