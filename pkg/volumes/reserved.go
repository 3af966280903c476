package volumes

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// Reserved describes a volume and the claim that it is reserved for.
type Reserved struct {
	VolumeMeta, ClaimMeta metav1.ObjectMeta // the claim's uid is "" if it does not exist
	Class                 string
	AccessModes           []corev1.PersistentVolumeAccessMode
	Policy                corev1.PersistentVolumeReclaimPolicy // "" is Retain
	Size                  resource.Quantity                    // 0 has no meaning: volumes and claims must have one
	Zone                  string                               // that pods must be in, or ""
	MountOptions          []string                             // without a port
	Port                  int
	Path                  string
}

// Objects builds the volume and the claim. The volume must be created with its claimRef: without one,
// the binder could bind it to any claim.
func (r Reserved) Objects() (*corev1.PersistentVolume, *corev1.PersistentVolumeClaim) {
	if r.Size.IsZero() {
		r.Size = resource.MustParse("1Gi")
	}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: r.ClaimMeta,
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      slices.Clone(r.AccessModes),
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: r.Size.DeepCopy()}},
			StorageClassName: &r.Class,
			VolumeName:       r.VolumeMeta.Name,
		},
	}
	return r.volume(), claim
}

func (r Reserved) volume() *corev1.PersistentVolume {
	source, options := corev1.NFSVolumeSource{Server: wellknown.LoopbackAddress, Path: r.Path}, r.MountOptions
	if IsReadOnly(r.AccessModes) { // the option counts: nothing enforces access modes, nor does kubelet read readOnly
		source.ReadOnly, options = true, setMountOption(slices.Clone(options), "ro")
	}
	return &corev1.PersistentVolume{
		ObjectMeta: r.VolumeMeta,
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: r.Size},
			AccessModes:                   r.AccessModes,
			PersistentVolumeReclaimPolicy: cmp.Or(r.Policy, corev1.PersistentVolumeReclaimRetain),
			StorageClassName:              r.Class,
			VolumeMode:                    new(corev1.PersistentVolumeFilesystem),
			MountOptions:                  withPort(options, r.Port),
			PersistentVolumeSource:        corev1.PersistentVolumeSource{NFS: &source},
			NodeAffinity:                  zoneAffinity(r.Zone),
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: r.ClaimMeta.Namespace, Name: r.ClaimMeta.Name, UID: r.ClaimMeta.UID,
			},
		},
	}
}

// IsReadOnly reports whether there is no access mode but ReadOnlyMany.
func IsReadOnly(modes []corev1.PersistentVolumeAccessMode) bool {
	return !slices.ContainsFunc(modes, func(mode corev1.PersistentVolumeAccessMode) bool { return mode != corev1.ReadOnlyMany })
}

// RootName names the root volume and the root claim of a file system.
func RootName(fileSystemID string) string { return wellknown.RootVolumePrefix + fileSystemID }

// RootObjects returns the volume of a whole file system, and its claim, which mount Jobs mount.
func RootObjects(fileSystemID string, port int, namespace string) (*corev1.PersistentVolume, *corev1.PersistentVolumeClaim) {
	name := RootName(fileSystemID)
	labels := func() map[string]string {
		return map[string]string{wellknown.LabelFileSystemID: fileSystemID, wellknown.LabelRootKey: fileSystemID}
	}
	options, _ := mergeMountOptions(wellknown.DefaultMountOptions, []string{wellknown.RootMountOptions})
	return Reserved{
		VolumeMeta: metav1.ObjectMeta{Name: name, Labels: labels(), Annotations: map[string]string{wellknown.AnnotationFileSystemID: fileSystemID}},
		ClaimMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels()},
		Class:      wellknown.RootStorageClass, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, MountOptions: options, Port: port, Path: "/",
	}.Objects()
}

// RootPair is a file system's root volume and root claim.
type RootPair struct {
	FileSystemID string
	Port         int                           // of its tunnel; 0 while it has none
	Namespace    string                        // the manager's
	Volume       *corev1.PersistentVolume      // nil if there is none
	Claim        *corev1.PersistentVolumeClaim // nil if there is none
}

// Changes returns the changes that correct the pair; none while the file system has no port.
func (p RootPair) Changes() []Change {
	if p.Port == 0 {
		return nil
	}
	volume, claim := RootObjects(p.FileSystemID, p.Port, p.Namespace)
	if p.Volume != nil {
		if key, ok := p.Volume.Labels[wellknown.LabelRootKey]; ok {
			volume.Labels[wellknown.LabelRootKey] = key // the original system's stays
		}
	}
	// Each object keeps the time of the next sweep, and how far a survey is, while the other one is missing: the
	// Jobs that it is known from may no longer exist.
	switch {
	case p.Volume == nil && p.Claim != nil:
		carryRecords(p.Claim.Annotations, &volume.ObjectMeta)
	case p.Claim == nil && p.Volume != nil:
		carryRecords(p.Volume.Annotations, &claim.ObjectMeta)
	}
	return Pair{Volume: p.Volume, Claim: p.Claim, WantVolume: volume, WantClaim: claim}.Changes()
}

func carryRecords(from map[string]string, to *metav1.ObjectMeta) {
	for _, name := range []string{wellknown.AnnotationNextSweep, wellknown.AnnotationSurvey} {
		if record, ok := from[name]; ok {
			metav1.SetMetaDataAnnotation(to, name, record)
		}
	}
}

// OtherInstallation returns the namespace for whose root claim a root volume is reserved, if that is not the manager's;
// "" for every other volume. A root volume that is reserved for a claim of another name was edited.
func OtherInstallation(volume *corev1.PersistentVolume, namespace string) string {
	if volume == nil || volume.Spec.ClaimRef == nil {
		return ""
	}
	isRoot := volume.Spec.StorageClassName == wellknown.RootStorageClass || volume.Labels[wellknown.LabelRootKey] != ""
	if ref := volume.Spec.ClaimRef; isRoot && ref.Name == volume.Name && ref.Namespace != namespace {
		return ref.Namespace
	}
	return ""
}

// BelongsTo returns a message that a file system is another installation's, with the remedy.
func BelongsTo(namespace string) string {
	return fmt.Sprintf("belongs to the installation in namespace %s: uninstall one of the two, or separate their file systems by --file-system-ids or --file-system-tags", namespace)
}

// OtherInstallation returns the namespace of another installation that has the root volume, or "".
func (p RootPair) OtherInstallation() string { return OtherInstallation(p.Volume, p.Namespace) }

// Ready returns why no Job may use the claim now, or "".
func (p RootPair) Ready() (why string) {
	other := p.OtherInstallation()
	switch changes := p.Changes(); {
	case other != "":
		return fmt.Sprintf("file system %s %s", p.FileSystemID, BelongsTo(other))
	case p.Port == 0:
		return "the file system has no local port yet"
	case len(changes) > 0:
		return fmt.Sprintf("%s %s: %s", changes[0].Action, RootName(p.FileSystemID), changes[0].Why)
	case p.Volume == nil || p.Volume.DeletionTimestamp != nil:
		return "the root volume is being deleted"
	case p.Claim.DeletionTimestamp != nil:
		return "the root claim is being deleted"
	case p.Claim.Status.Phase != corev1.ClaimBound || p.Volume.Status.Phase != corev1.VolumeBound:
		return "the root claim is not bound yet"
	}
	return ""
}

// Existing describes the volume of a directory that exists, and the claim that it is reserved for. For the
// manager it is like one that it has made itself.
type Existing struct {
	Name string // of the volume
	// OwnerUID is the uid of the claim as the ledger has it, which is not that of the new claim.
	OwnerUID         string
	FileSystemID     string
	Port             int // of the file system
	Path             string
	AccessPointID    string // on the directory; "" for a volume of the directory itself
	PointPort        int    // of the access point; 0 until the manager gives it one
	Namespace, Claim string
	// ClaimUID is that of a claim that exists, and names the volume; "" if there is none.
	ClaimUID types.UID
	Class    Class
	Zone     string // that pods must be in, or ""
	Policy   corev1.PersistentVolumeReclaimPolicy
	Size     resource.Quantity
	// AccessModes are those of the claim, where it exists: for readers only, the volume must be read-only.
	AccessModes []corev1.PersistentVolumeAccessMode
	GID         int // a group for pods that use it, or 0
}

// Objects builds the volume and its claim. The error says what no volume can have.
func (e Existing) Objects(provisioner string) (*corev1.PersistentVolume, *corev1.PersistentVolumeClaim, error) {
	if err := e.check(); err != nil {
		return nil, nil, err
	}
	kept := record{FileSystemID: e.FileSystemID, Keep: e.Class.KeepDeleted, Policy: e.Policy}
	volume, claim := Reserved{
		VolumeMeta: kept.meta(e.Name, e.Path, e.GID, provisioner),
		ClaimMeta:  metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Claim, UID: e.ClaimUID},
		Class:      e.Class.Name, AccessModes: e.AccessModes, Policy: e.Policy, Size: e.Size, Zone: e.Zone,
		MountOptions: e.Class.MountOptions, Port: e.Port, Path: e.Path,
	}.Objects()
	if e.AccessPointID != "" {
		OnPoint(volume, e.AccessPointID, e.PointPort, e.Class.AccessPoints.IAM)
	}
	if _, ok := ClaimOfName(e.Name); !ok {
		volume.Annotations[wellknown.AnnotationClaimUID] = e.OwnerUID
	}
	return volume, claim, nil
}

// check refuses what the apiserver, the manager or a mount Job would refuse later: names come from a file
// system, where other people write.
func (e Existing) check() error {
	for _, name := range []struct {
		what, value string
		problems    []string
	}{
		{"volume", e.Name, validation.IsDNS1123Subdomain(e.Name)},
		{"namespace", e.Namespace, validation.IsDNS1123Label(e.Namespace)},
		{"claim", e.Claim, validation.IsDNS1123Subdomain(e.Claim)},
	} {
		if len(name.problems) > 0 {
			return fmt.Errorf("%s is no name of a %s: %s", quoted(name.value), name.what, strings.Join(name.problems, "; "))
		}
	}
	return cmp.Or(operations.CheckPath(e.Path), ports.CheckTargetID(e.FileSystemID), e.checkRest())
}

func (e Existing) checkRest() error {
	uid, named := ClaimOfName(e.Name)
	switch {
	case !uids.MatchString(e.OwnerUID):
		return fmt.Errorf("the owner's claim has the uid %s, which is none of an apiserver", quoted(e.OwnerUID))
	case named && string(uid) != e.OwnerUID:
		return fmt.Errorf("the volume's name %s is not for the claim uid %s", e.Name, e.OwnerUID)
	case e.Port < 1 || e.Port > wellknown.MaxPort:
		return fmt.Errorf("file system %s has no local port yet", e.FileSystemID)
	case !isReclaimPolicy(e.Policy):
		return fmt.Errorf("the reclaim policy is %s: write Retain or Delete", quoted(string(e.Policy)))
	case e.Size.Sign() <= 0:
		return errors.New("the size is not above 0")
	}
	return e.checkModes()
}

// checkModes refuses ReadWriteOncePod for a new claim: other volumes may have the directory. The manager has accepted
// it for a claim that exists.
func (e Existing) checkModes() error {
	for _, mode := range e.AccessModes {
		if shortAccessModes()[mode] == "" || mode == corev1.ReadWriteOncePod && e.ClaimUID == "" {
			return fmt.Errorf("the access mode is %s: write ReadWriteMany, ReadWriteOnce or ReadOnlyMany", quoted(string(mode)))
		}
	}
	return nil
}
