package rebuild

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Cluster is the one that gets volumes, and what it has.
type Cluster struct {
	UID         string // as ledgers have it
	Provisioner string
	Targets     map[string]ports.Target
	Volumes     map[string]*corev1.PersistentVolume
	Claims      map[types.NamespacedName]*corev1.PersistentVolumeClaim
	Namespaces  map[string]types.UID
	Classes     map[string]*storagev1.StorageClass
}

// NewCluster indexes objects.
func NewCluster(uid, provisioner string, targets map[string]ports.Target, volumes []corev1.PersistentVolume,
	claims []corev1.PersistentVolumeClaim, namespaces []corev1.Namespace, classes []storagev1.StorageClass,
) Cluster {
	c := Cluster{
		UID: uid, Provisioner: provisioner, Targets: targets,
		Volumes: map[string]*corev1.PersistentVolume{}, Claims: map[types.NamespacedName]*corev1.PersistentVolumeClaim{},
		Namespaces: map[string]types.UID{}, Classes: map[string]*storagev1.StorageClass{},
	}
	for i := range volumes {
		c.Volumes[volumes[i].Name] = &volumes[i]
	}
	for i := range claims {
		c.Claims[types.NamespacedName{Namespace: claims[i].Namespace, Name: claims[i].Name}] = &claims[i]
	}
	for _, namespace := range namespaces {
		c.Namespaces[namespace.Name] = namespace.UID
	}
	for i := range classes {
		c.Classes[classes[i].Name] = &classes[i]
	}
	return c
}

// Choice has the fields of a volume that neither its directory nor the ledger has.
type Choice struct {
	Class      string
	Policy     corev1.PersistentVolumeReclaimPolicy
	Size       resource.Quantity
	AccessMode corev1.PersistentVolumeAccessMode
}

// class returns a storage class of the provisioner. The error has the remedy.
func (c Cluster) class(name string) (volumes.Class, error) {
	object := c.Classes[name]
	switch {
	case name == "":
		return volumes.Class{}, errors.New("its class is not known: name one with --class")
	case object == nil:
		return volumes.Class{}, fmt.Errorf("there is no storage class %q: create it, or name another with --class", name)
	case object.Provisioner != c.Provisioner:
		return volumes.Class{}, fmt.Errorf("storage class %q is of provisioner %q, not %q: name another with --class", name, object.Provisioner, c.Provisioner)
	}
	return volumes.ParseClass(object)
}

// existing completes the description of a volume from its class and file system.
func (c Cluster) existing(e volumes.Existing, class string, choice Choice) (volumes.Existing, error) {
	target, ok := c.Targets[e.FileSystemID]
	if !ok {
		return e, fmt.Errorf("file system %q is not in the table", e.FileSystemID)
	}
	parsed, err := c.class(class)
	if err != nil {
		return e, err
	}
	e.Class, e.Port = parsed, target.Port
	if parsed.EnforceZoneAffinity {
		e.Zone = target.AvailabilityZone
	}
	e.Size, e.AccessMode = choice.Size, choice.AccessMode
	return e, nil
}

// add plans the objects that are missing. Nothing that exists is overwritten, and nothing is planned for a
// namespace that does not exist: a volume that is reserved for it is the data of whoever creates it.
//
//	volume    claim              what is done
//	missing   missing            both are created
//	missing   names the volume   the volume is created for it
//	missing   another            refused
//	there     missing            the claim is created, unless the volume is another's
//	there     names the volume   nothing
//	there     another            refused
func (c Cluster) add(item *Item, e volumes.Existing) {
	claim := c.Claims[types.NamespacedName{Namespace: e.Namespace, Name: e.Claim}]
	if claim != nil && claim.Spec.VolumeName != e.Name {
		item.end(Refused, otherClaim(claim))
		return
	}
	if claim != nil {
		e.ClaimUID = claim.UID
	}
	newVolume, newClaim, err := e.Objects(c.Provisioner)
	if err != nil {
		item.end(Refused, err.Error())
		return
	}
	if _, ok := c.Namespaces[e.Namespace]; !ok {
		item.end(Left, "namespace "+e.Namespace+" does not exist: create it, and run this command again")
		return
	}
	if volume := c.Volumes[e.Name]; volume == nil {
		item.NewVolume = newVolume
	} else if why := c.otherVolume(volume, e); why != "" {
		item.end(Refused, why)
		return
	}
	if claim == nil {
		item.NewClaim = newClaim
	}
}

func otherClaim(claim *corev1.PersistentVolumeClaim) string {
	name := claim.Namespace + "/" + claim.Name
	if claim.Spec.VolumeName == "" {
		return "claim " + name + " exists, without a volume: it is left alone"
	}
	return "claim " + name + " exists, with volume " + claim.Spec.VolumeName + ": it is left alone"
}

// otherVolume returns why a volume that exists is not the one that is described, or "".
func (c Cluster) otherVolume(object *corev1.PersistentVolume, e volumes.Existing) string {
	volume, ref := volumes.Read(object, c.Provisioner), object.Spec.ClaimRef
	switch {
	case volume.Kind != volumes.Provisioned || volume.FileSystemID != e.FileSystemID || volume.Path != e.Path:
		return "volume " + e.Name + " exists, and has another directory: it is left alone"
	case ref == nil || ref.Namespace != e.Namespace || ref.Name != e.Claim:
		return "volume " + e.Name + " exists, and is not reserved for the claim: it is left alone"
	case ref.UID != e.ClaimUID && (ref.UID != "" || object.Status.Phase == corev1.VolumeReleased):
		return "volume " + e.Name + " exists, and its claim was deleted: it is left alone"
	}
	return ""
}
