package volumes_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

func FuzzPattern(f *testing.F) {
	f.Add("${.PVC.namespace}/${volume_name}", "/", "team", "data", "x", "a/b")
	f.Add("${.PVC.labels.a}${.PVC.labels.a}", "/k8s", "..", ".", ".", "../..")
	f.Add("x-${.PVC.annotations.a}/${.PV.name}", "/k8s/", "", "@", "/", ".efs-stunnel")
	f.Add("${${.PVC.name}}", "/.efs-stunnel", "\x00", `\`, "\xff", "//")
	f.Fuzz(func(t *testing.T, pattern, base, namespace, name, label, annotation string) {
		claim := newClaim(annotated("a", annotation))
		claim.Namespace, claim.Name, claim.Labels = namespace, name, map[string]string{"a": label}
		p, ok := provision(t, newClass(map[string]string{"path_pattern": pattern, "base_path": base}), claim)
		if !ok || strings.Contains(pattern, ".PVC.annotations.") {
			return
		}
		// Only slashes outside of variables make a path deeper.
		literal, inside := 0, false
		for _, r := range pattern {
			inside = r == '{' || inside && r != '}'
			if r == '/' && !inside {
				literal++
			}
		}
		if deep := strings.Count(p, "/") - strings.Count(strings.TrimSuffix(base, "/"), "/") - 1; deep != literal {
			t.Errorf("pattern %q made %q, deeper than it says", pattern, p)
		}
	})
}

func FuzzClass(f *testing.F) {
	f.Add("directory_perms", "0777", "uid", "0", "noatime", "topology.kubernetes.io/zone")
	f.Add("gidAllocate", "true", "gidMin", "2000", "port=1,vers=3", "zone")
	f.Add("fileSystemId", "fs-1", "keep_deleted", "-1h", "soft,tls", "")
	f.Add("file_system_tags", "a=b,,=", "file_system_ids", ",", "v4.1", "x")
	f.Fuzz(func(t *testing.T, key, value, key2, value2, option, topology string) {
		object := newClass(map[string]string{key: value, key2: value2}, func(c *storagev1.StorageClass) {
			c.MountOptions = strings.Split(option, ";")
			if topology != "" {
				c.AllowedTopologies = topologies(topology, "a")
			}
		})
		class, err := volumes.ParseClass(object)
		if !wantRefusedOr(t, err) {
			return
		}
		for _, option := range class.MountOptions {
			name, _, _ := strings.Cut(option, "=")
			if slices.Contains([]string{"port", "proto", "addr", "tls", "nconnect", "sec"}, name) || strings.ContainsAny(option, " ,\n\x00") {
				t.Errorf("it has the mount option %q", option)
			}
		}
		if d := class.Directory; d.UID < 0 || d.GID < 0 || d.AllocateGID && d.GIDMin != 0 && d.GIDMin < 2000 {
			t.Errorf("it makes directories like %+v", d)
		}
		provision(t, object, newClaim())
	})
}

func FuzzClaim(f *testing.F) {
	f.Add("volume_name", "x", "", "team", "data", claimUID)
	f.Add("file_system_id", "fs-1", "old", "a", strings.Repeat("b", 253), "u")
	f.Add("reclaim_policy", "Retain", "../x", "..", "..", "..")
	f.Add("kubernetes.io/a", "b", "\x00", "a/b", "a\nb", "@")
	f.Fuzz(func(t *testing.T, key, value, restore, namespace, name, uid string) {
		claim := newClaim(selecting(map[string]string{key: value}))
		claim.Namespace, claim.Name = namespace, name
		if isUID(uid) { // by the cluster alone
			claim.UID = types.UID(uid)
		}
		if restore != "" {
			claim.Annotations["efs-stunnel.gnuthought.com/restore"] = restore
		}
		provision(t, newClass(nil), claim)
	})
}

func isUID(text string) bool {
	return text != "" && len(text) <= 36 && strings.Trim(text, "0123456789abcdef-") == ""
}

func FuzzFromOperation(f *testing.F) {
	f.Add("/team/x", "pvc-u", "u", []byte(`{"fs":"fs-1","size":"1Gi","modes":["RWX"],"class":"efs","policy":"Delete"}`))
	f.Add("/", "pvc-", "", []byte(`{"fs":"..","size":"-1","modes":[],"policy":"Recycle"}`))
	f.Add("/.efs-stunnel/x", "x", "y", []byte(`null`))
	f.Fuzz(func(t *testing.T, path, name, uid string, record []byte) {
		operation := operations.Operation{
			Owner: operations.Owner{Volume: name, Namespace: "team", Claim: "data", ClaimUID: uid},
			Path:  path, Record: json.RawMessage(record),
		}
		volume, err := volumes.FromOperation(operation, 20490, 0, provisioner)
		if err == nil {
			wantSafePath(t, volume.Spec.NFS.Path, "/")
		}
	})
}

func FuzzRead(f *testing.F) {
	f.Add("127.0.0.1", "/team/x", "/team/x", "fs-1", "efs", "pvc-u", "u")
	f.Add("localhost", "/", "/", "..", "efs-stunnel-system", "efs-stunnel-fs-1", "")
	f.Add("127.0.0.1", "/a/../b", "", "", "", "", "")
	f.Fuzz(func(t *testing.T, server, source, annotation, fileSystem, class, name, uid string) {
		object := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
			"pv.kubernetes.io/provisioned-by":           provisioner,
			"efs-stunnel.gnuthought.com/file-system-id": fileSystem,
			"efs-stunnel.gnuthought.com/path":           annotation,
		}}}
		object.Spec.StorageClassName, object.Spec.PersistentVolumeReclaimPolicy = class, "Delete"
		object.Spec.NFS = &corev1.NFSVolumeSource{Server: server, Path: source}
		object.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "team", Name: "data", UID: types.UID(uid)}
		object.Status.Phase = corev1.VolumeReleased
		volume := volumes.Read(object, provisioner)
		if !volume.NeedsCleanup(nil) {
			return
		}
		wantSafePath(t, volumes.Cleanup(volume, cluster).Path, "/")
		if server != "127.0.0.1" || source != annotation || class == "efs-stunnel-system" {
			t.Errorf("a forged volume would be cleaned: %s:%s, %s, class %s", server, source, annotation, class)
		}
	})
}
