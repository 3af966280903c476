// Package translate turns storage classes of other provisioners, and the AWS EFS Operator's SharedVolumes, into ours.
package translate

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/plugin/printing"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// driver is the provisioner of the AWS EFS CSI driver.
const driver = "efs.csi.aws.com"

func translateClass(text []byte, provisioner string) ([]byte, error) {
	var old storagev1.StorageClass
	if err := yaml.Unmarshal(text, &old); err != nil {
		return nil, err
	}
	t := translation{old: old, class: *old.DeepCopy()}
	delete(t.class.Annotations, corev1.LastAppliedConfigAnnotation)
	t.class.ObjectMeta = metav1.ObjectMeta{Name: old.Name, Labels: old.Labels, Annotations: t.class.Annotations}
	t.class.Provisioner = provisioner
	switch name := old.Provisioner; {
	case name == provisioner:
		t.comment("it is of provisioner %s already", name)
	case name == driver && volumes.MakesAccessPoints(&old):
		t.comment("only the provisioner differs: access points are made, as by the driver")
	case strings.Contains(name, "nfs") || strings.Contains(name, "efs") || name == "fuseim.pri/ifs":
		t.translate()
	default:
		return nil, fmt.Errorf("storage class %q: provisioner is %q: want that of the AWS EFS CSI driver (%s), efs-provisioner, nfs-subdir-external-provisioner, nfs-provisioner or csi-driver-nfs, which has efs or nfs in its name", old.Name, name, driver)
	}
	if _, err := volumes.ParseClass(&t.class); err != nil {
		return nil, err
	}
	return t.print()
}

// translation is a class with the comments on it.
type translation struct {
	old, class storagev1.StorageClass
	comments   bytes.Buffer
}

func (t *translation) comment(format string, args ...any) {
	fmt.Fprintln(&t.comments, "#", printing.Line(fmt.Sprintf(format, args...)))
}

func (t *translation) print() ([]byte, error) {
	t.comment("a class cannot be edited: delete the old one first, which no volume needs, or give this one another name")
	text, err := yaml.Marshal(t.class)
	return append(t.comments.Bytes(), text...), err
}

// translate leaves out what our classes refuse. Their parser says what there is in its place.
func (t *translation) translate() {
	t.class.Parameters = map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(t.old.Parameters)) {
		t.parameter(key, t.old.Parameters[key])
	}
	own := t.class.Parameters
	if strings.Contains(t.old.Provisioner, "efs-provisioner") || strings.HasSuffix(t.old.Provisioner, "aws-efs") {
		t.groups()
	}
	t.class.MountOptions = slices.DeleteFunc(t.class.MountOptions, func(option string) bool {
		return t.isRefused(storagev1.StorageClass{MountOptions: []string{option}})
	})
	if own["default_file_system_id"] == "" {
		t.comment("the file system is chosen among all that are found: write default_file_system_id for a certain one")
	}
}

// groups keeps the default of efs-provisioner, which ignores a range without gidAllocate.
func (t *translation) groups() {
	own := t.class.Parameters
	if own["gidAllocate"] == "" {
		own["gidAllocate"] = "true"
		t.comment("gidAllocate is the default of efs-provisioner, and not here")
	}
	if own["gidAllocate"] != "true" {
		delete(own, "gidMin")
		delete(own, "gidMax")
	}
}

// isRefused comments on a setting that our classes cannot have.
func (t *translation) isRefused(with storagev1.StorageClass) bool {
	_, err := volumes.ParseClass(&with)
	if err != nil {
		t.comment("left out: %s", strings.TrimPrefix(err.Error(), `storage class "": `))
	}
	return err != nil
}

// renamed has our names of parameters that others have, too.
var renamed = map[string]string{
	"fileSystemId": "default_file_system_id", "basePath": "base_path", "share": "base_path",
	"subPathPattern": "path_pattern", "pathPattern": "path_pattern", "subDir": "path_pattern",
	"directoryPerms": "directory_perms", "mountPermissions": "directory_perms", "gidMin": "gidMin", "gidMax": "gidMax",
}

// variables replaces those of csi-driver-nfs in subDir.
var variables = strings.NewReplacer("${pvc.metadata.namespace}", "${.PVC.namespace}", "${pvc.metadata.name}", "${.PVC.name}", "${pv.metadata.name}", "${.PV.name}")

func (t *translation) parameter(key, value string) {
	own := t.class.Parameters
	switch {
	case key == "mountPermissions" && value == "0": // its default: the mode is not changed
	case (key == "server" || key == "dnsName") && strings.HasPrefix(value, "fs-"):
		own["default_file_system_id"], _, _ = strings.Cut(value, ".")
	case key == "onDelete" && value == "retain":
		policy := corev1.PersistentVolumeReclaimRetain
		t.class.ReclaimPolicy = &policy
	case key == "archiveOnDelete" && value == "true", key == "onDelete" && value == "archive":
		own["keep_deleted"] = "forever"
		t.comment("deleted data stays in the trash: kubectl efs-stunnel trash list")
	case key == "archiveOnDelete", key == "onDelete": // it is deleted here, too
	case renamed[key] != "":
		own[renamed[key]] = variables.Replace(value)
	case !t.isRefused(storagev1.StorageClass{Parameters: map[string]string{key: value}}):
		own[key] = value
	}
}
