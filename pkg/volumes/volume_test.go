package volumes_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// everything is an operation that uses every field.
func everything(t testing.TB) operations.Operation {
	t.Helper()
	class := parseClass(t, newClass(map[string]string{
		"base_path": "/k8s", "share_across_namespaces": "true", "share_across_clusters": "true", "adopt_existing": "false",
		"gidAllocate": "true", "gidMin": "3000", "gidMax": "4000", "directory_perms": "2770", "keep_deleted": "72h",
	}, func(c *storagev1.StorageClass) { c.MountOptions = []string{"soft", "noatime"} }))
	claim := parseClaim(t, newClaim(selecting(map[string]string{"volume_name": "x", "tier": "gold"})), class)
	return begin(t, claim, class, volumes.Choice{FileSystemID: "fs-1", Zone: "us-east-1a"})
}

func TestBegin(t *testing.T) {
	want := operations.Operation{
		Kind:      operations.Setup,
		Owner:     operations.Owner{Volume: "pvc-" + claimUID, Cluster: cluster, Namespace: "team", Claim: "data", ClaimUID: claimUID, Class: "efs"},
		Path:      "/k8s/team/x",
		Directory: operations.Directory{Mode: "2770", AllocateGID: true, GIDMin: 3000, GIDMax: 4000},
		Rules:     operations.Rules{ShareAcrossNamespaces: true, ShareAcrossClusters: true, RefuseExisting: true},
		Record: json.RawMessage(`{"fs":"fs-1","size":"5Gi","modes":["RWX"],"class":"efs","policy":"Delete",` +
			`"options":"vers=4.1,rsize=1048576,wsize=1048576,soft,timeo=600,retrans=2,noresvport,noatime",` +
			`"labels":{"tier":"gold","volume_name":"x"},"zone":"us-east-1a","keep":"72h"}`),
	}
	if diff := cmp.Diff(want, everything(t)); diff != "" {
		t.Errorf("operation mismatch (-want +got):\n%s", diff)
	}
}

// Hundreds of claims share an annotation, so a plain one must be short.
func TestBeginOfAPlainClaimIsShort(t *testing.T) {
	class := parseClass(t, newClass(nil))
	operation := begin(t, parseClaim(t, newClaim(), class), class, volumes.Choice{FileSystemID: "fs-1"})
	want := `{"fs":"fs-1","size":"5Gi","modes":["RWX"],"class":"efs","policy":"Delete"}`
	if string(operation.Record) != want {
		t.Errorf("the record is %s, not %s", operation.Record, want)
	}
}

func TestBeginARestore(t *testing.T) {
	class := parseClass(t, newClass(map[string]string{"directory_perms": "0700", "share_across_clusters": "true"}))
	claim := parseClaim(t, newClaim(annotated("efs-stunnel.gnuthought.com/restore", "old-uid")), class)
	operation := begin(t, claim, class, volumes.Choice{FileSystemID: "fs-1"})
	want := operations.Operation{
		Kind: operations.Restore, Owner: operation.Owner, Path: "/team/data-" + claimUID, RestoreFrom: "old-uid", Record: operation.Record,
	}
	if diff := cmp.Diff(want, operation); diff != "" {
		t.Errorf("operation mismatch (-want +got):\n%s", diff)
	}
}

func TestBeginRefusesWhatFillsAnAnnotation(t *testing.T) {
	labels := map[string]string{}
	for i := range 400 {
		labels[strconv.Itoa(1000+i)] = strings.Repeat("x", 60)
	}
	class := parseClass(t, newClass(nil))
	claim := parseClaim(t, newClaim(selecting(labels)), class)
	_, err := volumes.Begin(claim, class, volumes.Choice{FileSystemID: "fs-1"}, cluster)
	wantRefusal(t, err, `the claim's labels and its class's mount options take 28132 bytes, more than 16384`)
}

func TestFromOperation(t *testing.T) {
	filesystem := corev1.PersistentVolumeFilesystem
	want := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-" + claimUID,
			Annotations: map[string]string{
				"pv.kubernetes.io/provisioned-by":           "gnuthought.com/efs-stunnel",
				"efs-stunnel.gnuthought.com/file-system-id": "fs-1",
				"efs-stunnel.gnuthought.com/path":           "/k8s/team/x",
				"efs-stunnel.gnuthought.com/keep-deleted":   "72h",
				"pv.beta.kubernetes.io/gid":                 "3001",
			},
			Labels:     map[string]string{"file_system_id": "fs-1", "tier": "gold", "volume_name": "x"},
			Finalizers: []string{"external-provisioner.volume.kubernetes.io/finalizer"},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{"storage": resource.MustParse("5Gi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{"ReadWriteMany"},
			PersistentVolumeReclaimPolicy: "Delete",
			StorageClassName:              "efs",
			VolumeMode:                    &filesystem,
			MountOptions:                  []string{"vers=4.1", "rsize=1048576", "wsize=1048576", "soft", "timeo=600", "retrans=2", "noresvport", "noatime", "port=20491"},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "127.0.0.1", Path: "/k8s/team/x"}},
			ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: "team", Name: "data", UID: claimUID},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "topology.kubernetes.io/zone", Operator: "In", Values: []string{"us-east-1a"}}},
			}}}},
		},
	}
	got, err := volumes.FromOperation(everything(t), 20491, 3001, provisioner)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("volume mismatch (-want +got):\n%s", diff)
	}
}

// TestFromOperationOfAnEarlierVersion: its mount Job may have run when the manager was upgraded.
func TestFromOperationOfAnEarlierVersion(t *testing.T) {
	operation := everything(t)
	operation.Record = bytes.Replace(operation.Record, []byte("vers=4.1"), []byte("nfsvers=4.1"), 1)
	volume, err := volumes.FromOperation(operation, 20490, 0, provisioner)
	if err != nil {
		t.Fatal(err)
	}
	if got := volume.Spec.MountOptions[0]; got != "vers=4.1" {
		t.Errorf("the version is spelled %s", got)
	}
}

// TestPortOfAnEarlierVolume: its other options stay as they are.
func TestPortOfAnEarlierVolume(t *testing.T) {
	volume := newVolume(t, func(o *corev1.PersistentVolume) { o.Spec.MountOptions = []string{"nfsvers=4.1", "hard", "port=20490"} })
	if volumes.SetPort(volume, 20490) {
		t.Errorf("a right port was changed: %q", volume.Spec.MountOptions)
	}
	if want := []string{"nfsvers=4.1", "hard", "port=20491"}; !volumes.SetPort(volume, 20491) || !slices.Equal(volume.Spec.MountOptions, want) {
		t.Errorf("got %q, want %q", volume.Spec.MountOptions, want)
	}
}

func TestFromOperationOfAPlainClaim(t *testing.T) {
	class := parseClass(t, newClass(nil))
	operation := begin(t, parseClaim(t, newClaim(selecting(map[string]string{"reclaim_policy": "Retain"})), class), class, volumes.Choice{FileSystemID: "fs-1"})
	volume, err := volumes.FromOperation(operation, 20490, 0, provisioner)
	if err != nil {
		t.Fatal(err)
	}
	if len(volume.Finalizers) > 0 || volume.Spec.PersistentVolumeReclaimPolicy != "Retain" {
		t.Errorf("a volume to retain has finalizers %q and policy %s", volume.Finalizers, volume.Spec.PersistentVolumeReclaimPolicy)
	}
	if volume.Spec.NodeAffinity != nil || len(volume.Annotations) != 3 {
		t.Errorf("it has affinity %v and annotations %v", volume.Spec.NodeAffinity, volume.Annotations)
	}
	if got, want := strings.Join(volume.Spec.MountOptions, ","), "vers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport,port=20490"; got != want {
		t.Errorf("it has mount options %s, not %s", got, want)
	}
}

// The volume is built by whoever leads when the Job ends, of what the Job's annotation says.
func TestFromOperationAfterTheAnnotation(t *testing.T) {
	class := parseClass(t, newClass(nil))
	plain := begin(t, parseClaim(t, newClaim(), class), class, volumes.Choice{FileSystemID: "fs-1"})
	for name, operation := range map[string]operations.Operation{"everything": everything(t), "a plain claim": plain} {
		data, err := operations.Encode([]operations.Operation{operation})
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := operations.Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		want, errWant := volumes.FromOperation(operation, 20490, 7, provisioner)
		got, errGot := volumes.FromOperation(decoded[0], 20490, 7, provisioner)
		if diff := cmp.Diff(want, got); diff != "" || errWant != nil || errGot != nil {
			t.Errorf("%s: %v, %v, volume mismatch (-original +decoded):\n%s", name, errWant, errGot, diff)
		}
		if id := got.Annotations["efs-stunnel.gnuthought.com/file-system-id"]; id != "fs-1" {
			t.Errorf("%s is for file system %q", name, id)
		}
	}
}

func TestFromOperationRefuses(t *testing.T) {
	const name = "pvc-" + claimUID
	record := func(from, to string) func(*operations.Operation) {
		return func(o *operations.Operation) {
			o.Record = json.RawMessage(strings.Replace(string(o.Record), from, to, 1))
		}
	}
	tests := map[string]struct {
		edit func(*operations.Operation)
		port int
		want string
	}{
		"a path that leads up":         {func(o *operations.Operation) { o.Path = "/a/../b" }, 1, `building volume ` + name + `: the path "/a/../b" has the component ..`},
		"the whole file system":        {func(o *operations.Operation) { o.Path = "/" }, 1, `building volume ` + name + `: the path / is the whole file system`},
		"another claim's name":         {func(o *operations.Operation) { o.ClaimUID = "other" }, 1, `building volume ` + name + `: it is not the name for claim uid "other"`},
		"no claim":                     {func(o *operations.Operation) { o.ClaimUID, o.Volume = "", "pvc-" }, 1, `building volume pvc-: it is not the name for claim uid ""`},
		"no record":                    {func(o *operations.Operation) { o.Record = nil }, 1, `reading the record of volume ` + name + `: unexpected end of JSON input`},
		"a file system that cannot be": {record("fs-1", "FS"), 1, `building volume ` + name + `: "FS" is no target id: want 1 to 43 lower-case letters, digits or dashes, a letter first and no dash last`},
		"a policy that cannot be":      {record("Delete", "Recycle"), 1, `building volume ` + name + `: its record has the reclaim policy "Recycle"`},
		"an access mode that is new":   {record("RWX", "RWX9"), 1, `building volume ` + name + `: its record has the access modes ["RWX9"]`},
		"no access mode":               {record(`"RWX"`, ""), 1, `building volume ` + name + `: its record has the access modes []`},
		"no port":                      {func(*operations.Operation) {}, 0, `building volume ` + name + `: file system fs-1 has no local port`},
	}
	for what, tt := range tests {
		t.Run(what, func(t *testing.T) {
			operation := everything(t)
			tt.edit(&operation)
			volume, err := volumes.FromOperation(operation, tt.port, 0, provisioner)
			if volume != nil || fmt.Sprint(err) != tt.want {
				t.Errorf("got %v, error\n%v\nnot\n%s", volume, err, tt.want)
			}
		})
	}
}

// TestVolumeForReadersIsMountedReadOnly has claims of several access modes.
func TestVolumeForReadersIsMountedReadOnly(t *testing.T) {
	tests := map[string]struct {
		modes []corev1.PersistentVolumeAccessMode
		class []string // mount options
		want  bool
	}{
		"readers only":                     {[]corev1.PersistentVolumeAccessMode{"ReadOnlyMany"}, nil, true},
		"readers only, in a class with rw": {[]corev1.PersistentVolumeAccessMode{"ReadOnlyMany"}, []string{"rw"}, true},
		"readers and writers":              {[]corev1.PersistentVolumeAccessMode{"ReadOnlyMany", "ReadWriteMany"}, nil, false},
		"a writer":                         {[]corev1.PersistentVolumeAccessMode{"ReadWriteOnce"}, nil, false},
		"one pod":                          {[]corev1.PersistentVolumeAccessMode{"ReadWriteOncePod"}, nil, false},
		"a writer, in a class for reading": {[]corev1.PersistentVolumeAccessMode{"ReadWriteMany"}, []string{"ro"}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			class := parseClass(t, newClass(nil, withMountOptions(tt.class...)))
			claim := parseClaim(t, newClaim(func(c *corev1.PersistentVolumeClaim) { c.Spec.AccessModes = tt.modes }), class)
			volume, err := volumes.FromOperation(begin(t, claim, class, volumes.Choice{FileSystemID: "fs-1"}), 20490, 0, provisioner)
			if err != nil {
				t.Fatal(err)
			}
			options := volume.Spec.MountOptions
			if got := slices.Contains(options, "ro"); got != tt.want || got && slices.Contains(options, "rw") {
				t.Errorf("its mount options are %q", options)
			}
			if diff := cmp.Diff(tt.modes, volume.Spec.AccessModes); diff != "" {
				t.Errorf("modes mismatch (-want +got):\n%s", diff)
			}
			if readers := tt.modes[0] == corev1.ReadOnlyMany && len(tt.modes) == 1; volume.Spec.NFS.ReadOnly != readers {
				t.Errorf("its source is %+v", volume.Spec.NFS)
			}
		})
	}
}
