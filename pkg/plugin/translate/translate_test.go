package translate

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

const ours = "gnuthought.com/efs-stunnel"

// document is a class of a provisioner with more lines.
func document(provisioner, more string) string {
	return "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: old, uid: u, resourceVersion: '7'}\nprovisioner: " + provisioner + "\n" + more
}

func TestTranslate(t *testing.T) {
	tests := map[string]struct {
		document   string
		parameters map[string]string
		options    []string
		comments   []string
	}{
		"the driver's access points": {
			document("efs.csi.aws.com", "mountOptions: [tls, iam]\nparameters: {provisioningMode: efs-ap, fileSystemId: fs-0123456789abcdef0, directoryPerms: '700', gidRangeStart: '1000', gidRangeEnd: '2000'}"),
			map[string]string{"provisioningMode": "efs-ap", "fileSystemId": "fs-0123456789abcdef0", "directoryPerms": "700", "gidRangeStart": "1000", "gidRangeEnd": "2000"},
			[]string{"tls", "iam"}, []string{"access points are made"},
		},
		"the driver without a mode": {document("efs.csi.aws.com", "mountOptions: [tls]"), nil, []string{}, []string{`mount option "tls"`, "for a certain one"}},
		"efs-provisioner": {
			document("example.com/aws-efs", "parameters: {gidMin: '40000', gidMax: '50000'}"),
			map[string]string{"gidAllocate": "true", "gidMin": "40000", "gidMax": "50000"}, nil, []string{"gidAllocate is the default"},
		},
		"efs-provisioner without gids": {
			document("openshift.org/aws-efs", "parameters: {gidAllocate: 'false', gidMin: '40000'}"), map[string]string{"gidAllocate": "false"}, nil, nil,
		},
		"nfs-subdir": {
			document("cluster.local/nfs-subdir-external-provisioner", "parameters: {archiveOnDelete: 'true', pathPattern: '${.PVC.namespace}/${.PVC.name}'}"),
			map[string]string{"keep_deleted": "forever", "path_pattern": "${.PVC.namespace}/${.PVC.name}"}, nil, []string{"trash"},
		},
		"csi-driver-nfs": {
			document("nfs.csi.k8s.io", "mountOptions: [nfsvers=4.1, nconnect=4]\nparameters: {server: fs-0123456789abcdef0.efs.us-east-1.amazonaws.com, share: /a, subDir: '${pvc.metadata.name}', mountPermissions: '0'}"),
			map[string]string{"default_file_system_id": "fs-0123456789abcdef0", "base_path": "/a", "path_pattern": "${.PVC.name}"}, []string{"nfsvers=4.1"}, []string{"nconnect"},
		},
		"values without quotes": {
			document("nfs.csi.k8s.io", "parameters: {mountPermissions: 0, archiveOnDelete: true}"), map[string]string{"keep_deleted": "forever"}, nil, nil,
		},
		"another server":    {document("nfs.csi.k8s.io", "parameters: {server: nas, onDelete: retain}"), nil, nil, []string{`"server"`, "default_file_system_id"}},
		"nfs-provisioner":   {document("example.com/nfs", "parameters: {rootSquash: 'true'}"), nil, nil, []string{"rootSquash"}},
		"what is ours":      {document(ours, "parameters: {base_path: /a}"), map[string]string{"base_path": "/a"}, nil, []string{"already"}},
		"a hostile comment": {document("nfs", "parameters: {\"x\\nprovisioner: evil\": y}"), nil, nil, []string{"unknown parameter"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			out, err := Translate([]byte(tt.document), ours)
			if err != nil {
				t.Fatal(err)
			}
			var class storagev1.StorageClass
			if err := yaml.UnmarshalStrict(out, &class); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if class.Provisioner != ours || class.Name != "old" || class.UID != "" || class.ResourceVersion != "" {
				t.Errorf("got %+v", class)
			}
			if diff := cmp.Diff(tt.parameters, class.Parameters) + cmp.Diff(tt.options, class.MountOptions); diff != "" && len(tt.parameters)+len(class.Parameters)+len(tt.options)+len(class.MountOptions) > 0 {
				t.Errorf("mismatch (-want +got):\n%s", diff)
			}
			for _, want := range tt.comments {
				if !strings.Contains(string(out), want) {
					t.Errorf("it lacks %q:\n%s", want, out)
				}
			}
			if _, err := volumes.ParseClass(&class); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTranslateSeveral(t *testing.T) {
	out, err := Translate([]byte("# only a comment\n---\n"+document("example.com/nfs", "")+"---\n"+document("efs.csi.aws.com", "")), ours)
	if got := strings.Count(string(out), "provisioner: "+ours); err != nil || got != 2 || strings.Count(string(out), "\n---\n") != 1 {
		t.Errorf("%d classes, %v:\n%s", got, err, out)
	}
}

// list has objects as kubectl get -o yaml prints several.
func list(objects ...string) string {
	text := "apiVersion: v1\nkind: List\nmetadata: {resourceVersion: ''}\nitems:\n"
	for _, o := range objects {
		text += "- " + strings.ReplaceAll(strings.TrimSpace(o), "\n", "\n  ") + "\n"
	}
	return text
}

func sharedVolume(group, name, fileSystem, accessPoint string) string {
	return "apiVersion: " + group + "/v1alpha1\nkind: SharedVolume\nmetadata: {namespace: team, name: " + name + ", finalizers: [f], uid: u, labels: {a: b}}\n" +
		"spec: {fileSystemID: '" + fileSystem + "', accessPointID: " + accessPoint + "}\nstatus: {phase: Ready, claimRef: {apiGroup: null, kind: PersistentVolumeClaim, name: pvc-sv1}}\n"
}

// TestTranslateSharedVolume of the operator's README.
func TestTranslateSharedVolume(t *testing.T) {
	out, err := Translate([]byte(sharedVolume(operatorGroup, "sv1", "fs-1234cdef", "fsap-0123456789abcdef")), ours)
	if err != nil {
		t.Fatal(err)
	}
	var got v1alpha1.SharedVolume
	if err := yaml.UnmarshalStrict(out, &got); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := v1alpha1.SharedVolume{
		TypeMeta:   metav1.TypeMeta{APIVersion: "efs-stunnel.gnuthought.com/v1alpha1", Kind: "SharedVolume"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "sv1-tls", Labels: map[string]string{"a": "b"}},
		Spec:       v1alpha1.SharedVolumeSpec{FileSystemID: "fs-1234cdef", AccessPointID: "fsap-0123456789abcdef"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("object mismatch (-want +got):\n%s", diff)
	}
	if !strings.Contains(string(out), "# name the claim pvc-sv1-tls in pods in place of pvc-sv1:") || strings.Contains(string(out), "status") {
		t.Errorf("got\n%s", out)
	}
}

func TestTranslateList(t *testing.T) {
	all := list(sharedVolume(operatorGroup, "a", "fs-1", "fsap-1"), document("nfs.csi.k8s.io", ""), sharedVolume(operatorGroup, "b", "fs-1", "fsap-2"))
	out, err := Translate([]byte(all+"---\n"+document("nfs", "")), ours)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(out), "\n---\n")
	if len(parts) != 4 || !strings.Contains(parts[0], "name: a-tls") || !strings.Contains(parts[1], "kind: StorageClass") || !strings.Contains(parts[2], "fsap-2") {
		t.Errorf("%d parts:\n%s", len(parts), out)
	}
}

func TestTranslateRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		document string
		want     []string
	}{
		"another kind":        {document("nfs", "") + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}", []string{"document 2", `"Secret"`, "want StorageClass", "SharedVolume of"}},
		"another provisioner": {document("ebs.csi.aws.com", ""), []string{"document 1", `"old"`, `"ebs.csi.aws.com"`, "want that of"}},
		"what access points are refused": {
			document("efs.csi.aws.com", "parameters: {provisioningMode: efs-ap, fileSystemId: fs-0123456789abcdef0, reuseAccessPoint: 'true', az: a}"),
			[]string{"document 1", `"old"`, "reuseAccessPoint", "subPathPattern", `"az"`, "directoryPerms is missing"},
		},
		"a bad value": {document("nfs", "parameters: {share: a/../b}"), []string{"document 1", "base_path", "absolute path"}},
		"no YAML":     {"a: [", []string{"document 1"}},
		"no object":   {"text", []string{"document 1"}},
		"another kind in a List": {
			list(document("nfs", ""), "apiVersion: v1\nkind: PersistentVolume"), []string{"document 1, item 2: ", `"PersistentVolume" of "v1"`},
		},
		"an empty List":               {list(), []string{"there is no StorageClass or SharedVolume"}},
		"a List in a List":            {list(list(document("nfs", ""))), []string{"document 1, item 1: ", `"List"`}},
		"a SharedVolume of ours":      {sharedVolume(v1alpha1.GroupName, "a", "fs-1", "fsap-1"), []string{"document 1: ", `"efs-stunnel.gnuthought.com/v1alpha1"`}},
		"a file system of the driver": {sharedVolume(operatorGroup, "a", "fs-1:/a", "fsap-1"), []string{`SharedVolume "a": spec.fileSystemID`, "want fs-"}},
		"no access point":             {sharedVolume(operatorGroup, "a", "fs-1", "''"), []string{`SharedVolume "a": spec.accessPointID`, "want fsap-"}},
		"a name with lines":           {sharedVolume(operatorGroup, `"a\nb"`, "fs-1", "fsap-1"), []string{"its name would be", "lower case"}},
		"nothing":                     {"", []string{"there is no StorageClass or SharedVolume"}},
	} {
		_, err := Translate([]byte(tt.document), ours)
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: it lacks %q: %v", name, want, err)
			}
		}
	}
}
