package kubelet

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/ports"
)

// sandbox is what a container sees of this machine.
type sandbox struct {
	own    string            // folder of the pod
	mounts map[string]string // path in the container -> folder here
}

// prepare mounts the pod's volumes, and says on the pod why one cannot be, as long as it cannot.
func (l *life) prepare() (sandbox, error) {
	box := sandbox{own: filepath.Join(l.options.Scratch, l.pod.Name), mounts: map[string]string{}}
	if err := os.MkdirAll(box.own, 0o700); err != nil {
		return box, err
	}
	folders := map[string]string{}
	for _, volume := range l.pod.Spec.Volumes {
		folder, err := l.mount(box, volume)
		if err != nil {
			return box, fmt.Errorf("mounting volume %s: %w", volume.Name, err)
		}
		folders[volume.Name] = folder
	}
	for _, mount := range l.pod.Spec.Containers[0].VolumeMounts {
		box.mounts[mount.MountPath] = folders[mount.Name]
	}
	return box, nil
}

func (l *life) mount(box sandbox, volume corev1.Volume) (folder string, err error) {
	switch {
	case volume.PersistentVolumeClaim != nil:
		return l.mountClaim(volume.PersistentVolumeClaim.ClaimName)
	case volume.DownwardAPI != nil:
		folder = filepath.Join(box.own, volume.Name)
		return folder, l.writeDownwardAPI(folder, volume.DownwardAPI.Items)
	default:
		return "", fmt.Errorf("volumes of its kind are not played")
	}
}

// mountClaim goes through the tunnel on the port that the volume names.
func (l *life) mountClaim(name string) (folder string, err error) {
	core := l.options.Client.CoreV1()
	claim, err := core.PersistentVolumeClaims(l.options.Namespace).Get(l.wanted, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	told := ""
	err = l.poll(l.wanted, func() (bool, error) {
		volume, err := core.PersistentVolumes().Get(l.wanted, claim.Spec.VolumeName, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		var said string
		if folder, said = l.mountVolume(volume); said == "" {
			return true, nil
		}
		if said != told {
			told, err = said, l.event(corev1.EventTypeWarning, "FailedMount", said)
		}
		return false, err
	})
	return folder, err
}

func (l *life) mountVolume(volume *corev1.PersistentVolume) (folder, said string) {
	if l.troubled(l.fate.FailedMount) {
		return "", l.failedMount(volume, l.fate.FailedMount)
	}
	named := ports.VolumeOf(volume)
	if !named.Loopback {
		return "", l.failedMount(volume, "mount.nfs: Connection timed out")
	}
	folder, err := l.options.Tunnel(l.wanted, named.Port)
	if err != nil {
		return "", l.failedMount(volume, fmt.Sprintf("mount.nfs: mount to NFS server '127.0.0.1' failed: Connection refused (%v)", err))
	}
	return filepath.Join(folder, volume.Spec.NFS.Path), ""
}

// failedMount is kubelet's frame around the words of mount(8).
func (l *life) failedMount(volume *corev1.PersistentVolume, words string) string {
	server := "127.0.0.1:/"
	if nfs := volume.Spec.NFS; nfs != nil {
		server = nfs.Server + ":" + nfs.Path
	}
	return fmt.Sprintf("MountVolume.SetUp failed for volume %[1]q : mount failed: exit status 32\nMounting command: mount\n"+
		"Mounting arguments: -t nfs -o %[2]s %[3]s /var/lib/kubelet/pods/%[4]s/volumes/kubernetes.io~nfs/%[1]s\nOutput: %[5]s\n",
		volume.Name, strings.Join(volume.Spec.MountOptions, ","), server, l.pod.UID, words)
}

// writeDownwardAPI knows annotations, which is what mount Jobs ask for.
func (l *life) writeDownwardAPI(folder string, items []corev1.DownwardAPIVolumeFile) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	for _, item := range items {
		if item.FieldRef == nil {
			return fmt.Errorf("file %s is of no field", item.Path)
		}
		key, isAnnotation := strings.CutPrefix(item.FieldRef.FieldPath, "metadata.annotations['")
		value, found := l.pod.Annotations[strings.TrimSuffix(key, "']")]
		if !isAnnotation || !found {
			return fmt.Errorf("file %s is of %s, which the pod does not have", item.Path, item.FieldRef.FieldPath)
		}
		if err := os.WriteFile(filepath.Join(folder, item.Path), []byte(value), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// inside finds where a path of the container is on this machine.
func (s sandbox) inside(name string) (here string, ok bool) {
	for mountPath, folder := range s.mounts {
		if name == mountPath {
			return folder, true
		}
		if below, is := strings.CutPrefix(name, path.Clean(mountPath)+"/"); is {
			return filepath.Join(folder, below), true
		}
	}
	return "", false
}

// translate gives a flag's value as the path that it is here.
func (s sandbox) translate(arg string) (translated string, ok bool) {
	flag, value, _ := strings.Cut(arg, "=")
	here, ok := s.inside(value)
	if !ok {
		return arg, false
	}
	return flag + "=" + here, true
}

// operations are what the container reads, "" if it has none.
func (s sandbox) operations(file string) string {
	here, ok := s.inside(file)
	if !ok {
		return ""
	}
	text, err := os.ReadFile(here)
	if err != nil {
		return ""
	}
	return string(text)
}
