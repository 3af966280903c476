//go:build integration

package integration_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// attacker makes classes, claims and volumes that try to reach other data. Each run has the same ones.
type attacker struct{ *rand.Rand }

func newAttacker() attacker { return attacker{rand.New(rand.NewPCG(20250102, 0))} }

// fragments are of paths, patterns, options, YAML and JSON; some are paths that plant makes.
func fragments() []string {
	return []string{
		"..", ".", "", "/", "//", "\\", "../victim", "../../outside", "/../", "..%2f", "%2e%2e", "%00", "\x00", "\n", "\r", "\t", "\x7f",
		"victim", "data", "secret", "victim/data", "/victim/data", "sneaky", "sneaky/data", "inside", "inside/link", "to-root", "outside",
		".efs-stunnel", ".efs-stunnel/owners", ".efs-stunnel/trash", "owners", "trash", "lock", "@", "@pvc-1", "@@sweeping", "~2",
		"evil", "team", "a", "b-c", "d_e", "f.g", "UPPER", "0", "-", "_", "...", ".hidden", "a/b/c", "a..b", "..a", "b..",
		"${.PVC.namespace}", "${volume_name}", "${.PVC.name}", "${.PVC.uid}", "${.PV.name}", "${.PVC.labels.path}", "${.PVC.annotations.path}", "${", "}", "$", "$$", "${.PVC.labels.}",
		"port=2049", ",port=20491", "=", ",", ";", "|", "`id`", "$(id)", "'", "\"", "{", "[", "#", "&a", "*a", "!!binary", ": ", "- ",
		"ä", "日本", "\u202e", "\u2028", "\ufeff", "e\u0301", "\xff", "\xc0\xaf", strings.Repeat("n", 64), strings.Repeat("x", 255), strings.Repeat("y", 256), strings.Repeat("z/", 600),
		"fs-1", "fs-2", "*", "auto", "Delete", "Retain", "Recycle", "true", "false", "0777", "7777", "-1", "99999999999", "1h", "forever", "kubernetes.io/x", "k8s.io", "gnuthought.com/x",
	}
}

// text returns a few fragments.
func (a attacker) text() string {
	all := fragments()
	text := ""
	for range 1 + a.IntN(3) {
		text += all[a.IntN(len(all))]
	}
	return text
}

// mostlyValid is one of the values, and sometimes a hostile text.
func (a attacker) mostlyValid(values ...string) string {
	if a.IntN(4) == 0 {
		return a.text()
	}
	return values[a.IntN(len(values))]
}

func (a attacker) uid() types.UID {
	return types.UID(fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", a.Uint32(), a.IntN(1<<16), a.IntN(1<<16), a.IntN(1<<16), a.Uint64N(1<<48)))
}

// setting is a key with valid values.
type setting struct {
	key    string
	values []string
}

// class has hostile values of known parameters, and sometimes an unknown one.
func (a attacker) class(name, provisioner string) *storagev1.StorageClass {
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, Parameters: map[string]string{}}
	for _, p := range []setting{
		{"path_pattern", []string{"${.PVC.namespace}/${volume_name}", "${.PVC.annotations.path}", "${.PVC.labels.path}/${volume_name}", "${.PVC.name}", "victim/${volume_name}", "victim/data"}},
		{"base_path", []string{"/", "/evil", "/victim", "/sneaky", "/evil/inside/link"}},
		{"share_across_namespaces", []string{"true", "false"}},
		{"adopt_existing", []string{"true", "false"}},
		{"keep_deleted", []string{"0", "1h", "forever"}},
		{"directory_perms", []string{"0777", "0700"}},
	} {
		if a.IntN(3) == 0 {
			class.Parameters[p.key] = a.mostlyValid(p.values...)
		}
	}
	if a.IntN(20) == 0 {
		class.Parameters[a.text()] = a.text()
	}
	if a.IntN(10) == 0 {
		class.MountOptions = []string{a.text()}
	}
	return class
}

// claim has a hostile selector, labels and annotations.
func (a attacker) claim(namespace, class string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: a.mostlyValid("data", "shop", "web-0"), UID: a.uid(), // the apiserver sets another
			Labels: map[string]string{"path": a.text()}, Annotations: map[string]string{"path": a.text()},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources:        corev1.VolumeResourceRequirements{Requests: oneGibibyte()},
			Selector:         &metav1.LabelSelector{MatchLabels: map[string]string{}},
		},
	}
	for _, label := range []setting{
		{wellknown.LabelVolumeName, []string{"data", "shop", "sneaky", "inside"}},
		{wellknown.LabelReclaimPolicy, []string{"Delete", "Retain"}},
		{a.text(), []string{"x"}},
	} {
		if a.IntN(3) == 0 {
			claim.Spec.Selector.MatchLabels[label.key] = a.mostlyValid(label.values...)
		}
	}
	if a.IntN(10) == 0 {
		claim.Annotations[wellknown.AnnotationRestore] = a.mostlyValid(string(a.uid()), "victim", "pvc-1")
	}
	return claim
}

// volume looks like one of the manager whose claim is deleted.
func (a attacker) volume(provisioner, fileSystem string) *corev1.PersistentVolume {
	path := a.mostlyValid("/victim/data", "/victim", "/", "/sneaky/data", "/evil/inside", "/evil/inside/link", "/.efs-stunnel", "/.efs-stunnel/owners/victim", "/unowned")
	object := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-" + string(a.uid()),
			Annotations: map[string]string{
				wellknown.AnnotationProvisionedBy: provisioner,
				wellknown.AnnotationFileSystemID:  fileSystem,
			},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    oneGibibyte(),
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: a.mostlyValid("victim", "evil"), Name: a.mostlyValid("data", "gone"), UID: a.uid(),
			},
			MountOptions:                  []string{a.mostlyValid("port=20490", "hard")},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: wellknown.LoopbackAddress, Path: path}},
		},
	}
	switch a.IntN(4) {
	case 0: // as one of the original system
	case 1:
		object.Annotations[wellknown.AnnotationPath] = a.text()
	default:
		object.Annotations[wellknown.AnnotationPath] = path
	}
	if a.IntN(5) == 0 {
		object.Name = a.mostlyValid("pvc-1", "old", "@pvc-1", "..")
	}
	return object
}

// plant makes a victim's data, and links to it from paths that a claim could have.
func plant(t testing.TB, root, outside string) {
	t.Helper()
	for _, folder := range []string{"victim/data", "victim/unowned", "unowned", "evil/inside"} {
		must(t, os.MkdirAll(filepath.Join(root, folder), 0o755))
		must(t, os.WriteFile(filepath.Join(root, folder, "secret"), []byte("of "+folder), 0o600))
	}
	must(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("of the node"), 0o600))
	for link, to := range map[string]string{
		"sneaky": "victim", "evil/sneaky": "../victim/data", "to-root": "/", "evil/outside": outside,
		"evil/inside/link": "../../victim", "evil/inside/up": "..", "evil/dangling": "nowhere",
	} {
		must(t, os.Symlink(to, filepath.Join(root, link)))
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// treeOf describes everything below a folder: mode, owner and content.
func treeOf(t testing.TB, root string) map[string]string {
	t.Helper()
	tree := map[string]string{}
	must(t, filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		what := info.Mode().String()
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			what += fmt.Sprintf(" %d:%d", stat.Uid, stat.Gid)
		}
		content, err := contentOf(name, info.Mode())
		tree["/"+strings.TrimPrefix(strings.TrimPrefix(name, root), "/")] = what + " " + content
		return err
	}))
	delete(tree, wellknown.StateDirectory+"/tmp") // comes and goes with the runs; what is left in it stays here
	return tree
}

func contentOf(name string, mode fs.FileMode) (string, error) {
	switch {
	case mode&fs.ModeSymlink != 0:
		return os.Readlink(name)
	case mode.IsRegular():
		text, err := os.ReadFile(name)
		return string(text), err
	case mode.IsDir():
		return "", nil
	}
	return "", errors.New(name + " is neither a file, a folder nor a link")
}

// describe is for the report of a failure.
func describe(object any) string {
	text, err := json.Marshal(object)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
