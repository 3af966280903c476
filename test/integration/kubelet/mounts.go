package kubelet

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/ports"
)

// sandbox maps the paths of a container to those of this machine.
type sandbox struct {
	own    string            // folder of the pod
	mounts map[string]string // path in the container -> folder here
}

// mountVolumes mounts the pod's volumes. While a mount fails, the pod has an event that says why.
func (p *pod) mountVolumes() (sandbox, error) {
	box := sandbox{own: filepath.Join(p.options.Scratch, p.object.Name), mounts: map[string]string{}}
	if err := os.MkdirAll(box.own, 0o700); err != nil {
		return box, err
	}
	folders := map[string]string{}
	for _, volume := range p.object.Spec.Volumes {
		folder, err := p.mount(box, volume)
		if err != nil {
			return box, fmt.Errorf("mounting volume %s: %w", volume.Name, err)
		}
		folders[volume.Name] = folder
	}
	for _, mount := range p.object.Spec.Containers[0].VolumeMounts {
		box.mounts[mount.MountPath] = folders[mount.Name]
	}
	return box, nil
}

func (p *pod) mount(box sandbox, volume corev1.Volume) (folder string, err error) {
	switch {
	case volume.PersistentVolumeClaim != nil:
		return p.mountClaim(volume.PersistentVolumeClaim.ClaimName)
	case volume.DownwardAPI != nil:
		folder = filepath.Join(box.own, volume.Name)
		return folder, p.writeDownwardAPI(folder, volume.DownwardAPI.Items)
	case volume.Projected != nil:
		folder = filepath.Join(box.own, volume.Name)
		return folder, p.writeTokens(folder, volume.Projected.Sources)
	default:
		return "", fmt.Errorf("volumes of its kind are not simulated")
	}
}

// mountClaim mounts through the tunnel on the port that the volume names.
func (p *pod) mountClaim(name string) (folder string, err error) {
	var volume *corev1.PersistentVolume // once it is found, the claim does not matter any more
	reported := ""
	err = p.poll(p.running, func() (bool, error) {
		found, problem, err := p.volumeOf(name)
		if err != nil {
			return false, err
		}
		if found != nil {
			volume = found
		}
		if volume != nil {
			folder, problem = p.mountVolume(volume)
		}
		if problem == "" {
			return true, nil
		}
		if problem != reported {
			reported, err = problem, p.event(corev1.EventTypeWarning, "FailedMount", problem)
		}
		return false, err
	})
	return folder, err
}

// volumeOf returns the volume of a claim, or kubelet's message why it does not mount one.
func (p *pod) volumeOf(name string) (volume *corev1.PersistentVolume, problem string, err error) {
	core := p.options.Client.CoreV1()
	claim, err := core.PersistentVolumeClaims(p.options.Namespace).Get(p.running, name, metav1.GetOptions{})
	if err == nil && claim.Status.Phase == corev1.ClaimBound {
		volume, err = core.PersistentVolumes().Get(p.running, claim.Spec.VolumeName, metav1.GetOptions{})
	}
	unprocessed := func(why string) string {
		return fmt.Sprintf("Unable to attach or mount volumes: unmounted volumes=[root], unattached volumes=[], failed to process volumes=[root]: error processing PVC %s/%s: %s", p.options.Namespace, name, why)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, unprocessed("failed to fetch PVC from API server: " + err.Error()), nil
	case err != nil:
		return nil, "", err
	case volume == nil:
		return nil, unprocessed("PVC is not bound"), nil
	case volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != claim.UID:
		return nil, unprocessed("PV and PVC do not refer to each other"), nil
	}
	return volume, "", nil
}

func (p *pod) mountVolume(volume *corev1.PersistentVolume) (folder, problem string) {
	if p.mountFails() {
		return "", p.failedMount(volume, p.behavior.FailedMount)
	}
	source := ports.VolumeOf(volume)
	if !source.Loopback {
		return "", p.failedMount(volume, "mount.nfs: Connection timed out")
	}
	folder, err := p.options.Tunnel(p.running, source.Port)
	if err != nil {
		return "", p.failedMount(volume, fmt.Sprintf("mount.nfs: mount to NFS server '127.0.0.1' failed: Connection refused (%v)", err))
	}
	return filepath.Join(folder, volume.Spec.NFS.Path), ""
}

// failedMount returns the kubelet's message around an error of mount(8).
func (p *pod) failedMount(volume *corev1.PersistentVolume, output string) string {
	server := "127.0.0.1:/"
	if nfs := volume.Spec.NFS; nfs != nil {
		server = nfs.Server + ":" + nfs.Path
	}
	return fmt.Sprintf("MountVolume.SetUp failed for volume %[1]q : mount failed: exit status 32\nMounting command: mount\n"+
		"Mounting arguments: -t nfs -o %[2]s %[3]s /var/lib/kubelet/pods/%[4]s/volumes/kubernetes.io~nfs/%[1]s\nOutput: %[5]s\n",
		volume.Name, strings.Join(volume.Spec.MountOptions, ","), server, p.object.UID, output)
}

// writeDownwardAPI supports annotations, which mount Jobs use.
func (p *pod) writeDownwardAPI(folder string, items []corev1.DownwardAPIVolumeFile) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	for _, item := range items {
		if item.FieldRef == nil {
			return fmt.Errorf("file %s is of no field", item.Path)
		}
		key, isAnnotation := strings.CutPrefix(item.FieldRef.FieldPath, "metadata.annotations['")
		value, found := p.object.Annotations[strings.TrimSuffix(key, "']")]
		if !isAnnotation || !found {
			return fmt.Errorf("file %s is of %s, which the pod does not have", item.Path, item.FieldRef.FieldPath)
		}
		if err := os.WriteFile(filepath.Join(folder, item.Path), []byte(value), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// writeTokens requests tokens that are bound to the pod, as kubelet does, and does not renew them.
func (p *pod) writeTokens(folder string, sources []corev1.VolumeProjection) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	for _, source := range sources {
		token := source.ServiceAccountToken
		if token == nil {
			return errors.New("only tokens are simulated")
		}
		answer, err := p.options.Client.CoreV1().ServiceAccounts(p.options.Namespace).CreateToken(p.running, p.object.Spec.ServiceAccountName, &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{
				Audiences:      []string{token.Audience},
				BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: p.object.Name, UID: p.object.UID},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, token.Path), []byte(answer.Status.Token), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// inside translates a path of the container.
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

// translate translates the path that is a flag's value.
func (s sandbox) translate(arg string) (translated string, ok bool) {
	flag, value, _ := strings.Cut(arg, "=")
	here, ok := s.inside(value)
	if !ok {
		return arg, false
	}
	return flag + "=" + here, true
}

// operations returns the text that the container reads, "" without a file.
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
