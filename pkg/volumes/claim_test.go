package volumes_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

func onePod(c *corev1.PersistentVolumeClaim) {
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
}

func quote(text string) string { return strconv.Quote(text) }

func TestParseClaimReads(t *testing.T) {
	plain := volumes.Claim{
		Namespace: "team", Name: "data", UID: claimUID,
		Path:          "/team/data-" + claimUID,
		ReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
		AccessModes:   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
		Capacity:      resource.MustParse("5Gi"),
	}
	filesystem, none := corev1.PersistentVolumeFilesystem, ""
	labels := func(path string, labels map[string]string) func(*volumes.Claim) {
		return func(c *volumes.Claim) { c.Path, c.Labels = path, labels }
	}
	tests := map[string]struct {
		class func(*storagev1.StorageClass)
		claim func(*corev1.PersistentVolumeClaim)
		want  func(*volumes.Claim) // edits the plain one
	}{
		"a claim without labels":          {claim: func(*corev1.PersistentVolumeClaim) {}, want: func(*volumes.Claim) {}},
		"a volume name is the directory":  {claim: selecting(map[string]string{"volume_name": "a_b-1"}), want: labels("/team/a_b-1", map[string]string{"volume_name": "a_b-1"})},
		"other labels are kept":           {claim: selecting(map[string]string{"tier": "", "example.com/a": "B.c"}), want: labels(plain.Path, map[string]string{"tier": "", "example.com/a": "B.c"})},
		"domains that only end like ours": {claim: selecting(map[string]string{"notkubernetes.io/a": "b", "kubernetes.io.example.com/a": "b"}), want: labels(plain.Path, map[string]string{"notkubernetes.io/a": "b", "kubernetes.io.example.com/a": "b"})},
		"a file system":                   {claim: selecting(map[string]string{"file_system_id": "fs-1"}), want: func(c *volumes.Claim) { c.FileSystemID, c.Labels = "fs-1", map[string]string{"file_system_id": "fs-1"} }},
		"a reclaim policy over the class's": {claim: selecting(map[string]string{"reclaim_policy": "Retain"}), want: func(c *volumes.Claim) {
			c.ReclaimPolicy, c.Labels = "Retain", map[string]string{"reclaim_policy": "Retain"}
		}},
		"all three access modes": {
			claim: func(c *corev1.PersistentVolumeClaim) {
				c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{"ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"}
			},
			want: func(c *volumes.Claim) {
				c.AccessModes = []corev1.PersistentVolumeAccessMode{"ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"}
			},
		},
		"access by one pod": {claim: onePod, want: func(c *volumes.Claim) {
			c.AccessModes = []corev1.PersistentVolumeAccessMode{"ReadWriteOncePod"}
		}},
		"access by one pod to a directory with the uid": {
			class: func(c *storagev1.StorageClass) {
				c.Parameters = map[string]string{"path_pattern": "${volume_name}/${.PVC.uid}"}
			},
			claim: func(c *corev1.PersistentVolumeClaim) {
				onePod(c)
				selecting(map[string]string{"volume_name": "x"})(c)
			},
			want: func(c *volumes.Claim) {
				c.AccessModes = []corev1.PersistentVolumeAccessMode{"ReadWriteOncePod"}
				labels("/x/"+claimUID, map[string]string{"volume_name": "x"})(c)
			},
		},
		"a volume mode, and an empty attributes class": {
			claim: func(c *corev1.PersistentVolumeClaim) {
				c.Spec.VolumeMode, c.Spec.VolumeAttributesClassName = &filesystem, &none
			},
			want: func(*volumes.Claim) {},
		},
		"a directory to restore": {claim: annotated(wellknown.AnnotationRestore, "abc-1"), want: func(c *volumes.Claim) { c.Restore = "abc-1" }},
		"a copy of a claim":      {claim: copyOf("old"), want: func(c *volumes.Claim) { c.Source = "old" }},
		"a copy by the other field": {claim: func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "old", Namespace: &c.Namespace}
		}, want: func(c *volumes.Claim) { c.Source = "old" }},
		"the node, where the class waits":     {class: waitForFirstConsumer, claim: annotated(wellknown.AnnotationSelectedNode, "n1"), want: func(c *volumes.Claim) { c.Node = "n1" }},
		"no node, where the class does not":   {claim: annotated(wellknown.AnnotationSelectedNode, "n1"), want: func(*volumes.Claim) {}},
		"a required volume name that is here": {class: func(c *storagev1.StorageClass) { c.Parameters = map[string]string{"require_volume_name": "true"} }, claim: selecting(map[string]string{"volume_name": "x"}), want: labels("/team/x", map[string]string{"volume_name": "x"})},
		"a file system of the list":           {class: func(c *storagev1.StorageClass) { c.Parameters = map[string]string{"file_system_ids": "fs-1,fs-2"} }, claim: selecting(map[string]string{"file_system_id": "fs-2"}), want: func(c *volumes.Claim) { c.FileSystemID, c.Labels = "fs-2", map[string]string{"file_system_id": "fs-2"} }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			class := newClass(nil)
			if tt.class != nil {
				tt.class(class)
			}
			want := plain
			tt.want(&want)
			got := parseClaim(t, newClaim(tt.claim), parseClass(t, class))
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("claim mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseClaimRefuses(t *testing.T) {
	block, gold, api := corev1.PersistentVolumeBlock, "gold", "snapshot.storage.k8s.io"
	label := func(key, value string) func(*corev1.PersistentVolumeClaim) {
		return selecting(map[string]string{key: value})
	}
	const reserved = "leave it out: labels of %s are not copied to volumes"
	inLabel := func(key, value, why string) string {
		return "label " + key + " in spec.selector.matchLabels is " + quote(value) + ": " + why
	}
	tests := map[string]struct {
		parameters map[string]string
		claim      func(*corev1.PersistentVolumeClaim)
		want       string
	}{
		"access by one pod to a directory of a name": {nil, func(c *corev1.PersistentVolumeClaim) {
			onePod(c)
			label("volume_name", "x")(c)
		}, `access mode ReadWriteOncePod needs a directory that no other claim has: leave out the label volume_name, or write ReadWriteOnce`},
		"access by one pod to a directory of all": {map[string]string{"path_pattern": "${.PVC.namespace}/${.PVC.name}"}, onePod,
			`access mode ReadWriteOncePod needs a directory that no other claim has: write ReadWriteOnce, or use a class whose path_pattern has ${.PVC.uid}`},
		"an access mode that is unknown": {nil, func(c *corev1.PersistentVolumeClaim) {
			c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{"ReadWriteNever"}
		}, `access mode "ReadWriteNever" is not known here: write ReadWriteOnce, ReadOnlyMany, ReadWriteMany or ReadWriteOncePod`},
		"no access mode": {nil, func(c *corev1.PersistentVolumeClaim) { c.Spec.AccessModes = nil }, `spec.accessModes is missing: write ReadWriteOnce, ReadOnlyMany or ReadWriteMany`},
		"a block device": {nil, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = &block }, `volumeMode "Block" is not possible on EFS: write Filesystem or leave it out`},
		"a copy of a claim elsewhere": {nil, func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "old", Namespace: &gold}
		}, `claim "old" of namespace "gold" cannot be copied into this one: a claim can be a copy of one of its own namespace only`},
		"a copy of itself": {nil, copyOf("data"), `the claim cannot be a copy of itself: write the name of another one in dataSource`},
		"a copy and a restore": {nil, func(c *corev1.PersistentVolumeClaim) {
			copyOf("old")(c)
			c.Annotations[wellknown.AnnotationRestore] = "abc"
		}, "the annotation " + wellknown.AnnotationRestore + " and dataSource cannot be kept both: leave one of them out"},
		"a copy of a snapshot": {nil, func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: &api, Kind: "VolumeSnapshot", Name: "s"}
		}, `VolumeSnapshot "s" cannot be copied into a volume: leave out dataSource and dataSourceRef, and copy the data with a pod`},
		"an attributes class": {nil, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = &gold }, `volumeAttributesClassName "gold" is not supported: leave it out`},
		"no size":             {nil, func(c *corev1.PersistentVolumeClaim) { c.Spec.Resources.Requests = nil }, `spec.resources.requests.storage is missing: write a size; it is a label only, because EFS grows as needed`},
		"match expressions": {nil, func(c *corev1.PersistentVolumeClaim) {
			c.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Exists"}}}
		}, `spec.selector.matchExpressions cannot be kept by a volume that is made for the claim: write matchLabels`},

		"a volume name in capitals":             {nil, label("volume_name", "Data"), inLabel("volume_name", "Data", "write a-z, 0-9, _ and - only")},
		"a volume name with a dot":              {nil, label("volume_name", "a.b"), inLabel("volume_name", "a.b", "write a-z, 0-9, _ and - only")},
		"a volume name that leads up":           {nil, label("volume_name", ".."), inLabel("volume_name", "..", "write a-z, 0-9, _ and - only")},
		"a volume name with a line's end":       {nil, label("volume_name", "a\n"), inLabel("volume_name", "a\n", "write a-z, 0-9, _ and - only")},
		"an empty volume name":                  {nil, label("volume_name", ""), inLabel("volume_name", "", "write a-z, 0-9, _ and - only")},
		"no volume name, where one must be":     {map[string]string{"require_volume_name": "true"}, selecting(nil), `storage class "efs" requires the label volume_name: add it to spec.selector.matchLabels`},
		"a file system that cannot be":          {nil, label("file_system_id", "FS.1"), inLabel("file_system_id", "FS.1", "write a file system's id such as fs-0123456789abcdef0")},
		"a file system to be chosen":            {nil, label("file_system_id", "auto"), inLabel("file_system_id", "auto", "leave it out to have one chosen")},
		"a file system outside of the list":     {map[string]string{"file_system_ids": "fs-1,fs-2"}, label("file_system_id", "fs-3"), inLabel("file_system_id", "fs-3", `storage class "efs" allows fs-1, fs-2`)},
		"a reclaim policy that cannot be":       {nil, label("reclaim_policy", "Recycle"), inLabel("reclaim_policy", "Recycle", "write Delete or Retain")},
		"a reclaim policy in small letters":     {nil, label("reclaim_policy", "delete"), inLabel("reclaim_policy", "delete", "write Delete or Retain")},
		"a label that is nearly volume_name":    {nil, label("volumeName", "x"), inLabel("volumeName", "x", "write volume_name")},
		"a label that is nearly file_system_id": {nil, label("File-System-ID", "fs-1"), inLabel("File-System-ID", "fs-1", "write file_system_id")},
		"a label that is nearly reclaim_policy": {nil, label("reclaimPolicy", "Retain"), inLabel("reclaimPolicy", "Retain", "write reclaim_policy")},
		"a label of Kubernetes":                 {nil, label("topology.kubernetes.io/zone", "a"), inLabel("topology.kubernetes.io/zone", "a", strings.Replace(reserved, "%s", "kubernetes.io", 1))},
		"a label of Kubernetes itself":          {nil, label("kubernetes.io/a", "a"), inLabel("kubernetes.io/a", "a", strings.Replace(reserved, "%s", "kubernetes.io", 1))},
		"a label of Kubernetes' projects":       {nil, label("x.k8s.io/a", "a"), inLabel("x.k8s.io/a", "a", strings.Replace(reserved, "%s", "k8s.io", 1))},
		"a label of ours":                       {nil, label("efs-stunnel.gnuthought.com/path", "a"), inLabel("efs-stunnel.gnuthought.com/path", "a", strings.Replace(reserved, "%s", "gnuthought.com", 1))},
		"the label of root volumes":             {nil, label("root_key", "fs-1"), inLabel("root_key", "fs-1", "leave it out: it is for volumes of whole file systems")},
		"a label that no object can have":       {nil, label("a b", "c"), inLabel(`"a b"`, "c", "no volume can have this label")},
		"a value that no label can have":        {nil, label("a", "c d"), inLabel("a", "c d", "no volume can have this label")},
		"something to restore that leads up":    {nil, annotated(wellknown.AnnotationRestore, "../x"), `annotation efs-stunnel.gnuthought.com/restore is "../x": write the uid of the deleted claim, such as 01234567-89ab-cdef-0123-456789abcdef`},
		"nothing to restore":                    {nil, annotated(wellknown.AnnotationRestore, ""), `annotation efs-stunnel.gnuthought.com/restore is "": write the uid of the deleted claim, such as 01234567-89ab-cdef-0123-456789abcdef`},
		"everything that is wrong, at once": {nil, func(c *corev1.PersistentVolumeClaim) {
			label("volume_name", "A")(c)
			c.Spec.VolumeMode = &block
		}, `volumeMode "Block" is not possible on EFS: write Filesystem or leave it out; ` + inLabel("volume_name", "A", "write a-z, 0-9, _ and - only")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := volumes.ParseClaim(newClaim(tt.claim), parseClass(t, newClass(tt.parameters)))
			wantRefusal(t, err, tt.want)
		})
	}
}

func TestParseClaimRefusesInFewWords(t *testing.T) {
	labels := map[string]string{}
	for i := range 1000 {
		labels["kubernetes.io/"+strconv.Itoa(i)] = strings.Repeat("\x01", 100)
	}
	_, err := volumes.ParseClaim(newClaim(selecting(labels)), parseClass(t, newClass(nil)))
	if err == nil || len(err.Error()) > 1024 || strings.ContainsRune(err.Error(), 1) {
		t.Errorf("refused with %q", err)
	}
}
