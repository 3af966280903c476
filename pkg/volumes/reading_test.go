package volumes_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// newVolume returns the volume of newClaim, bound, but for what the edits change.
func newVolume(t testing.TB, edits ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	t.Helper()
	class := parseClass(t, newClass(nil))
	operation := begin(t, parseClaim(t, newClaim(), class), class, volumes.Choice{FileSystemID: "fs-1"})
	volume, err := volumes.FromOperation(operation, 20490, 0, provisioner)
	if err != nil {
		t.Fatal(err)
	}
	volume.Status.Phase = corev1.VolumeBound
	for _, edit := range edits {
		edit(volume)
	}
	return volume
}

// original is as the original system made them.
func original(v *corev1.PersistentVolume) {
	v.Name, v.Labels, v.Finalizers = "efs-team-x", nil, nil
	v.Annotations = map[string]string{
		"pv.kubernetes.io/provisioned-by":           provisioner,
		"efs-stunnel.gnuthought.com/file-system-id": "fs-1",
	}
	v.Spec.NFS.Path = "/team/x"
	v.Spec.MountOptions = []string{"port=20490"}
}

func TestRead(t *testing.T) {
	ours := volumes.Volume{
		Name: "pvc-" + claimUID, Kind: volumes.Provisioned, FileSystemID: "fs-1", Path: "/team/data-" + claimUID, Port: 20490,
		Policy: "Delete", Namespace: "team", Claim: "data", ClaimUID: claimUID,
	}
	const key = "efs-stunnel.gnuthought.com/"
	annotation := func(k, v string) func(*corev1.PersistentVolume) {
		return func(o *corev1.PersistentVolume) { o.Annotations[k] = v }
	}
	problem := func(text string) func(*volumes.Volume) {
		return func(v *volumes.Volume) { v.Problem = text }
	}
	tests := map[string]struct {
		edit func(*corev1.PersistentVolume)
		want func(*volumes.Volume) // edits ours
	}{
		"what we made is ours":                      {func(*corev1.PersistentVolume) {}, func(*volumes.Volume) {}},
		"it knows how long it is kept":              {annotation(key+"keep-deleted", "72h"), func(v *volumes.Volume) { v.Keep = "72h" }},
		"what cannot be read is kept for ever":      {annotation(key+"keep-deleted", "7 days"), func(v *volumes.Volume) { v.Keep = "forever" }},
		"the original's has no path in annotations": {original, func(v *volumes.Volume) { v.Name, v.Kind, v.Path = "efs-team-x", volumes.Original, "/team/x" }},
		"others' volumes are foreign":               {annotation("pv.kubernetes.io/provisioned-by", "example.com/nfs"), func(v *volumes.Volume) { v.Kind = volumes.Foreign }},
		"the owner is the claim that it was made for": {
			func(o *corev1.PersistentVolume) { o.Spec.ClaimRef.UID, o.Spec.ClaimRef.Name = "second", "later" },
			func(v *volumes.Volume) { v.Claim = "later" },
		},
		"an adopted volume's owner is its claim": {
			func(o *corev1.PersistentVolume) { o.Name, o.Spec.ClaimRef.UID = "pvc-old-name", "second" },
			func(v *volumes.Volume) { v.Name, v.ClaimUID = "pvc-old-name", "second" },
		},
		"without a claimRef only the name knows": {
			func(o *corev1.PersistentVolume) { o.Spec.ClaimRef = nil },
			func(v *volumes.Volume) { v.Namespace, v.Claim = "", "" },
		},
		"a port that is not there is none":      {func(o *corev1.PersistentVolume) { o.Spec.MountOptions = nil }, func(v *volumes.Volume) { v.Port = 0 }},
		"another server is a forgery":           {func(o *corev1.PersistentVolume) { o.Spec.NFS.Server = "10.0.0.1" }, problem(`its server is "10.0.0.1", not 127.0.0.1`)},
		"another name of the node is a forgery": {func(o *corev1.PersistentVolume) { o.Spec.NFS.Server = "localhost" }, problem(`its server is "localhost", not 127.0.0.1`)},
		"another source is a forgery": {func(o *corev1.PersistentVolume) {
			o.Spec.NFS, o.Spec.HostPath = nil, &corev1.HostPathVolumeSource{Path: "/etc"}
		}, func(v *volumes.Volume) { v.Path, v.Problem = "", "it is not an NFS volume" }},
		"the whole file system is a forgery": {func(o *corev1.PersistentVolume) { o.Spec.NFS.Path = "/"; o.Annotations[key+"path"] = "/" }, func(v *volumes.Volume) { v.Path, v.Problem = "/", "the path / is the whole file system" }},
		"a path that leads up is a forgery":  {func(o *corev1.PersistentVolume) { o.Spec.NFS.Path = "/a/../b"; o.Annotations[key+"path"] = "/a/../b" }, func(v *volumes.Volume) { v.Path, v.Problem = "/a/../b", `the path "/a/../b" has the component ..` }},
		"the ledger as a volume is a forgery": {func(o *corev1.PersistentVolume) { o.Spec.NFS.Path = "/.efs-stunnel/owners" }, func(v *volumes.Volume) {
			v.Path, v.Problem = "/.efs-stunnel/owners", `the path "/.efs-stunnel/owners" is in /.efs-stunnel, where no volume may be`
		}},
		"two paths are a forgery":     {annotation(key+"path", "/other/x"), problem(`its annotation efs-stunnel.gnuthought.com/path is "/other/x", but its path is "/team/data-` + claimUID + `"`)},
		"an empty path is one of two": {annotation(key+"path", ""), problem(`its annotation efs-stunnel.gnuthought.com/path is "", but its path is "/team/data-` + claimUID + `"`)},
		"a file system that cannot be": {annotation(key+"file-system-id", "../x"), func(v *volumes.Volume) {
			v.FileSystemID, v.Problem = "../x", `its annotation efs-stunnel.gnuthought.com/file-system-id is "../x", which is not the id of a file system`
		}},
		"no file system": {func(o *corev1.PersistentVolume) { delete(o.Annotations, key+"file-system-id") }, func(v *volumes.Volume) {
			v.FileSystemID, v.Problem = "", `its annotation efs-stunnel.gnuthought.com/file-system-id is "", which is not the id of a file system`
		}},
		"the original's can be forged, too": {func(o *corev1.PersistentVolume) { original(o); o.Spec.NFS.Path = "/" }, func(v *volumes.Volume) {
			v.Name, v.Kind, v.Path, v.Problem = "efs-team-x", volumes.Original, "/", "the path / is the whole file system"
		}},
		"a root volume is one whatever it says": {func(o *corev1.PersistentVolume) { o.Spec.StorageClassName = "efs-stunnel-system" }, func(v *volumes.Volume) { v.Kind = volumes.Root }},
		"a root volume is known by its name": {func(o *corev1.PersistentVolume) {
			o.Spec.StorageClassName, o.Name = "efs-stunnel-system", "efs-stunnel-fs-2"
		}, func(v *volumes.Volume) { v.Kind, v.Name, v.FileSystemID = volumes.Root, "efs-stunnel-fs-2", "fs-2" }},
		"the original's root volume has a label": {func(o *corev1.PersistentVolume) { o.Spec.StorageClassName, o.Annotations = "efs-stunnel-system", nil }, func(v *volumes.Volume) { v.Kind = volumes.Root }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			want := ours
			tt.want(&want)
			want.Object = newVolume(t, tt.edit)
			got := volumes.Read(want.Object, provisioner)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("volume mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCleanup(t *testing.T) {
	volume := volumes.Read(newVolume(t, func(o *corev1.PersistentVolume) { o.Annotations[wellknown.AnnotationKeepDeleted] = "1h" }), provisioner)
	want := operations.Operation{
		Kind:  operations.Cleanup,
		Owner: operations.Owner{Volume: "pvc-" + claimUID, Cluster: cluster, Namespace: "team", Claim: "data", ClaimUID: claimUID},
		Path:  "/team/data-" + claimUID,
		Keep:  "1h",
	}
	if diff := cmp.Diff(want, volumes.Cleanup(volume, cluster)); diff != "" {
		t.Errorf("operation mismatch (-want +got):\n%s", diff)
	}
}

// The setup that entered an owner and the cleanup that drops it must mean the same one.
func TestCleanupIsOfTheOwnerThatBegan(t *testing.T) {
	operation := everything(t)
	built, err := volumes.FromOperation(operation, 20490, 3001, provisioner)
	if err != nil {
		t.Fatal(err)
	}
	cleanup := volumes.Cleanup(volumes.Read(built, provisioner), cluster)
	operation.Class = "" // of the entry, not of who the owner is
	if cleanup.Owner != operation.Owner || cleanup.Path != operation.Path {
		t.Errorf("began %+v at %s, cleans %+v at %s", operation.Owner, operation.Path, cleanup.Owner, cleanup.Path)
	}
}

func TestSetPort(t *testing.T) {
	const annotation = "volume.beta.kubernetes.io/mount-options"
	tests := map[string]struct {
		options, old string // old is the annotation
		want         string
		changed      bool
	}{
		"the right port stays in its place":     {"port=20490,hard", "", "port=20490,hard", false},
		"a wrong port is replaced":              {"port=20491,hard", "", "hard,port=20490", true},
		"a missing port is added":               {"hard", "", "hard,port=20490", true},
		"no options become one":                 {"", "", "port=20490", true},
		"of several ports one stays":            {"port=20490,hard,port=20491", "", "hard,port=20490", true},
		"the right port twice becomes one":      {"port=20490,port=20490", "", "port=20490", true},
		"the old annotation is what counts":     {"port=1", "hard,port=20491", "hard,port=20490", true},
		"the old annotation may be right":       {"port=1", "hard,port=20490", "hard,port=20490", false},
		"options that only look like it remain": {"mountport=1,port=20491", "", "mountport=1,port=20490", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			volume := &corev1.PersistentVolume{}
			if tt.options != "" {
				volume.Spec.MountOptions = strings.Split(tt.options, ",")
			}
			got := func() string { return strings.Join(volume.Spec.MountOptions, ",") }
			if tt.old != "" {
				metav1.SetMetaDataAnnotation(&volume.ObjectMeta, annotation, tt.old)
				got = func() string { return volume.Annotations[annotation] }
			}
			if changed := volumes.SetPort(volume, 20490); changed != tt.changed || got() != tt.want {
				t.Errorf("got %q, changed %v, want %q, %v", got(), changed, tt.want, tt.changed)
			}
			if volumes.SetPort(volume, 20490) {
				t.Error("the second time changes something again")
			}
		})
	}
}

func TestSetPortSplitsOptions(t *testing.T) {
	volume := &corev1.PersistentVolume{}
	volume.Spec.MountOptions = []string{"hard,port=1", " port=2 "}
	if !volumes.SetPort(volume, 3) || strings.Join(volume.Spec.MountOptions, "|") != "hard|port=3" {
		t.Errorf("got %q", volume.Spec.MountOptions)
	}
}
