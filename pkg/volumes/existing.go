package volumes

import (
	"errors"
	"fmt"
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

// Existing describes the volume of a directory that exists, and the claim that it is reserved for. For the
// manager it is like one that it has made itself.
type Existing struct {
	Name string // of the volume
	// OwnerUID is the uid of the claim as the ledger has it, which is not that of the new claim.
	OwnerUID         string
	FileSystemID     string
	Port             int
	Path             string
	Namespace, Claim string
	// ClaimUID is that of a claim that exists, and names the volume; "" if there is none.
	ClaimUID   types.UID
	Class      Class
	Zone       string // that pods must be in, or ""
	Policy     corev1.PersistentVolumeReclaimPolicy
	Size       resource.Quantity
	AccessMode corev1.PersistentVolumeAccessMode
	GID        int // a group for pods that use it, or 0
}

// Objects builds the volume and its claim. The error says what no volume can have.
func (e Existing) Objects(provisioner string) (*corev1.PersistentVolume, *corev1.PersistentVolumeClaim, error) {
	if err := e.check(); err != nil {
		return nil, nil, err
	}
	kept := record{FileSystemID: e.FileSystemID, Keep: e.Class.KeepDeleted}
	volume, claim := Reserved{
		VolumeMeta: metav1.ObjectMeta{
			Name: e.Name, Annotations: kept.annotations(e.Path, e.GID, provisioner),
			Labels:     map[string]string{wellknown.LabelFileSystemID: e.FileSystemID},
			Finalizers: finalizers(e.Policy),
		},
		ClaimMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Claim},
		Class:     e.Class.Name, AccessMode: e.AccessMode, MountOptions: e.Class.MountOptions, Port: e.Port, Path: e.Path,
	}.Objects()
	if _, ok := ClaimOfName(e.Name); !ok {
		volume.Annotations[wellknown.AnnotationClaimUID] = e.OwnerUID
	}
	size := corev1.ResourceList{corev1.ResourceStorage: e.Size}
	volume.Spec.Capacity, claim.Spec.Resources.Requests = size, size.DeepCopy()
	volume.Spec.PersistentVolumeReclaimPolicy = e.Policy
	volume.Spec.NodeAffinity = zoneAffinity(e.Zone)
	volume.Spec.ClaimRef.UID = e.ClaimUID
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
	if err := operations.CheckPath(e.Path); err != nil {
		return err
	}
	if err := ports.CheckTargetID(e.FileSystemID); err != nil {
		return err
	}
	return e.checkRest()
}

func (e Existing) checkRest() error {
	uid, named := ClaimOfName(e.Name)
	_, known := shortAccessModes()[e.AccessMode]
	switch {
	case !uids.MatchString(e.OwnerUID):
		return fmt.Errorf("the owner's claim has the uid %s, which is none of an apiserver", quoted(e.OwnerUID))
	case named && string(uid) != e.OwnerUID:
		return fmt.Errorf("the volume's name %s is not for the claim uid %s", e.Name, e.OwnerUID)
	case e.Port < 1 || e.Port > wellknown.MaxPort:
		return fmt.Errorf("file system %s has no local port yet", e.FileSystemID)
	case !isReclaimPolicy(string(e.Policy)):
		return fmt.Errorf("the reclaim policy is %s: write Retain or Delete", quoted(string(e.Policy)))
	case !known || e.AccessMode == corev1.ReadWriteOncePod: // other volumes may have the directory
		return fmt.Errorf("the access mode is %s: write ReadWriteMany, ReadWriteOnce or ReadOnlyMany", quoted(string(e.AccessMode)))
	case e.Size.Sign() <= 0:
		return errors.New("the size is not above 0")
	}
	return nil
}
