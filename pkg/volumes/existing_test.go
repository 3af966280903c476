package volumes_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

const existingUID = "11111111-2222-4333-8444-555555555555"

func existing(t *testing.T, edits ...func(*volumes.Existing)) volumes.Existing {
	t.Helper()
	class, err := volumes.ParseClass(&storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "efs"},
		Parameters: map[string]string{"keep_deleted": "72h"},
	})
	if err != nil {
		t.Fatal(err)
	}
	e := volumes.Existing{
		Name: "pvc-" + existingUID, OwnerUID: existingUID, FileSystemID: "fs-0123456789abcdef0", Port: 20490, Path: "/old/data",
		Namespace: "team", Claim: "data", Class: class, Policy: corev1.PersistentVolumeReclaimRetain,
		Size: resource.MustParse("2Gi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
	}
	for _, edit := range edits {
		edit(&e)
	}
	return e
}

// TestVolumeOfADirectoryThatExistsIsOneOfOurs for the manager.
func TestVolumeOfADirectoryThatExistsIsOneOfOurs(t *testing.T) {
	tests := map[string]struct {
		edit  func(*volumes.Existing)
		check func(*corev1.PersistentVolume) bool
	}{
		"with the policy Retain": {func(*volumes.Existing) {}, func(v *corev1.PersistentVolume) bool {
			return len(v.Finalizers) == 0 && v.Spec.ClaimRef.UID == "" && v.Annotations[wellknown.AnnotationKeepDeleted] == "72h" && v.Spec.NodeAffinity == nil
		}},
		"with the policy Delete": {func(e *volumes.Existing) { e.Policy = corev1.PersistentVolumeReclaimDelete }, func(v *corev1.PersistentVolume) bool {
			return len(v.Finalizers) == 1 && v.Finalizers[0] == wellknown.FinalizerVolume
		}},
		"of another name": {func(e *volumes.Existing) { e.Name = "legacy" }, func(v *corev1.PersistentVolume) bool {
			return v.Annotations[wellknown.AnnotationClaimUID] == existingUID
		}},
		"with a group": {func(e *volumes.Existing) { e.GID = 2001 }, func(v *corev1.PersistentVolume) bool {
			return v.Annotations[wellknown.AnnotationGID] == "2001"
		}},
		"for readers": {func(e *volumes.Existing) { e.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany} }, func(v *corev1.PersistentVolume) bool {
			return v.Spec.NFS.ReadOnly && slices.Contains(v.Spec.MountOptions, "ro")
		}},
		"for one pod, of a claim that exists": {func(e *volumes.Existing) { e.AccessModes[0], e.ClaimUID = corev1.ReadWriteOncePod, "u" }, func(v *corev1.PersistentVolume) bool {
			return v.Spec.AccessModes[0] == corev1.ReadWriteOncePod && !v.Spec.NFS.ReadOnly
		}},
		"in a zone": {func(e *volumes.Existing) { e.Zone = "us-east-1a" }, func(v *corev1.PersistentVolume) bool {
			return v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0] == "us-east-1a"
		}},
		"for a claim that exists": {func(e *volumes.Existing) { e.ClaimUID = "u" }, func(v *corev1.PersistentVolume) bool {
			return v.Spec.ClaimRef.UID == "u"
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			object, claim, err := existing(t, tt.edit).Objects(wellknown.DefaultProvisioner)
			if err != nil {
				t.Fatal(err)
			}
			read := volumes.Read(object, wellknown.DefaultProvisioner)
			if read.Kind != volumes.Provisioned || read.Problem != "" || read.ClaimUID != existingUID || read.Port != 20490 || read.Path != "/old/data" {
				t.Errorf("%+v", read)
			}
			if !tt.check(object) {
				t.Errorf("%+v", object)
			}
			size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
			if claim.Spec.VolumeName != object.Name || claim.Namespace != "team" || claim.Name != "data" || size.String() != "2Gi" ||
				*claim.Spec.StorageClassName != object.Spec.StorageClassName || object.Spec.ClaimRef.Name != claim.Name {
				t.Errorf("%+v", claim)
			}
		})
	}
}

// TestVolumesThatNobodyCanHaveAreRefused: names of a ledger may be anything.
func TestVolumesThatNobodyCanHaveAreRefused(t *testing.T) {
	tests := map[string]struct {
		edit func(*volumes.Existing)
		want string
	}{
		"a volume's name":     {func(e *volumes.Existing) { e.Name = "a\x1b[2J" }, "is no name of a volume"},
		"a namespace":         {func(e *volumes.Existing) { e.Namespace = "a.b" }, `"a.b" is no name of a namespace`},
		"a claim":             {func(e *volumes.Existing) { e.Claim = "A" }, `"A" is no name of a claim`},
		"no claim":            {func(e *volumes.Existing) { e.Claim = "" }, "is no name of a claim"},
		"a long claim":        {func(e *volumes.Existing) { e.Claim = strings.Repeat("y", 300) }, "is no name of a claim"},
		"a path":              {func(e *volumes.Existing) { e.Path = "/a/../b" }, "has the component .."},
		"the ledger":          {func(e *volumes.Existing) { e.Path = "/.efs-stunnel/owners" }, "where no volume may be"},
		"a file system":       {func(e *volumes.Existing) { e.FileSystemID = "FS" }, "FS"},
		"no uid":              {func(e *volumes.Existing) { e.OwnerUID = "u1" }, `the uid "u1"`},
		"another claim's uid": {func(e *volumes.Existing) { e.Name = "pvc-21111111-2222-4333-8444-555555555555" }, "is not for the claim uid"},
		"no port":             {func(e *volumes.Existing) { e.Port = 0 }, "has no local port yet"},
		"the policy Recycle":  {func(e *volumes.Existing) { e.Policy = corev1.PersistentVolumeReclaimRecycle }, "write Retain or Delete"},
		"an access mode":      {func(e *volumes.Existing) { e.AccessModes[0] = corev1.ReadWriteOncePod }, "write ReadWriteMany"},
		"an unknown mode":     {func(e *volumes.Existing) { e.AccessModes[0], e.ClaimUID = "Never", "u" }, "write ReadWriteMany"},
		"a size":              {func(e *volumes.Existing) { e.Size = resource.MustParse("-1Gi") }, "the size is not above 0"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, err := existing(t, tt.edit).Objects(wellknown.DefaultProvisioner)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\x1b") {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}
