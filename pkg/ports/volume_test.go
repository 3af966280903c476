package ports_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

func persistentVolume(change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "v", Annotations: map[string]string{wellknown.AnnotationFileSystemID: "fs-1"},
		},
		Spec: corev1.PersistentVolumeSpec{
			MountOptions: []string{"hard", "port=20490"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				NFS: &corev1.NFSVolumeSource{Server: wellknown.LoopbackAddress, Path: "/ns/x"},
			},
		},
	}
	change(pv)
	return pv
}

func TestVolumeOf(t *testing.T) {
	options := func(options ...string) func(*corev1.PersistentVolume) {
		return func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = options }
	}
	onPort := func(port int) ports.Volume { return volume("v", "fs-1", port) }
	tests := map[string]struct {
		change func(*corev1.PersistentVolume)
		want   ports.Volume
	}{
		"a volume of ours": {func(*corev1.PersistentVolume) {}, onPort(20490)},
		"a volume of an access point": {
			func(pv *corev1.PersistentVolume) { pv.Annotations[wellknown.AnnotationAccessPointID] = "fsap-1" },
			ports.Volume{Name: "v", On: ports.Key{FileSystem: "fs-1", AccessPoint: "fsap-1"}, Port: 20490, Loopback: true},
		},
		"options in one string":    {options("hard,port=20491, timeo=600"), onPort(20491)},
		"the last port wins":       {options("port=20491", "port=20492"), onPort(20492)},
		"a port that is none":      {options("port=20491", "port=x"), onPort(0)},
		"a port out of range":      {options("port=65536"), onPort(0)},
		"another option like it":   {options("mountport=20491"), onPort(0)},
		"no options":               {options(), onPort(0)},
		"options of old":           {func(pv *corev1.PersistentVolume) { pv.Annotations[corev1.MountOptionAnnotation] = "hard,port=20499" }, onPort(20499)},
		"a root volume":            {func(pv *corev1.PersistentVolume) { pv.Spec.StorageClassName = wellknown.RootStorageClass }, root(onPort(20490))},
		"an unannotated volume":    {func(pv *corev1.PersistentVolume) { pv.Annotations = nil }, volume("v", "", 20490)},
		"the loopback by its name": {func(pv *corev1.PersistentVolume) { pv.Spec.NFS.Server = "localhost" }, onPort(20490)},
		"another server":           {func(pv *corev1.PersistentVolume) { pv.Spec.NFS.Server = "10.0.0.1" }, ports.Volume{Name: "v", On: ports.Key{FileSystem: "fs-1"}, Port: 20490}},
		"another kind of volume":   {func(pv *corev1.PersistentVolume) { pv.Spec.NFS = nil }, ports.Volume{Name: "v", On: ports.Key{FileSystem: "fs-1"}, Port: 20490}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, ports.VolumeOf(persistentVolume(tt.change))); diff != "" {
				t.Errorf("volume mismatch (-want +got):\n%s", diff)
			}
		})
	}
}
