package sharedvolumes

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// state is the observed state of one SharedVolume. Its objects belong to the caches and are never changed.
type state struct {
	paths   Paths
	targets targets.Snapshot
	now     time.Time

	object *v1alpha1.SharedVolume        // nil when it is gone
	volume *corev1.PersistentVolume      // of the volume's name, whoever owns it; nil if there is none
	claim  *corev1.PersistentVolumeClaim // of the claim's name, likewise
}

func (s state) ownsVolume() bool { return s.volume != nil && s.owns(s.volume, s.claim) }

// ownsClaim reports whether the claim was created for the object. A claim that names another volume was never
// created for the object, and may have a user's data.
func (s state) ownsClaim() bool {
	return s.claim != nil && s.claim.Spec.VolumeName == volumeName(s.object) && s.owns(s.claim, s.volume)
}

// owns compares the annotation of one half of the pair. Without any, the other half has it, if the two
// are bound to each other.
func (s state) owns(half, other metav1.Object) bool {
	owner, ok := half.GetAnnotations()[wellknown.AnnotationSharedVolume]
	if !ok && s.areBound() {
		owner = other.GetAnnotations()[wellknown.AnnotationSharedVolume]
	}
	return owner == nameOf(s.object)
}

func (s state) areBound() bool {
	if s.volume == nil || s.claim == nil || s.volume.Spec.ClaimRef == nil {
		return false
	}
	return s.claim.Spec.VolumeName == s.volume.Name && s.volume.Spec.ClaimRef.UID == s.claim.UID && s.claim.UID != ""
}

// serves reports whether pods can use the claim.
func (s state) serves() bool {
	return s.ownsClaim() && s.areBound() && s.claim.DeletionTimestamp == nil &&
		s.claim.Status.Phase == corev1.ClaimBound && s.volume.Status.Phase == corev1.VolumeBound
}

// conflict names the other owner of a name that the object needs, or "".
func (s state) conflict() string {
	const way = "; delete what is in the way, or create this SharedVolume again under another name"
	if s.volume != nil && !s.ownsVolume() {
		if owner, ok := s.volume.Annotations[wellknown.AnnotationSharedVolume]; ok {
			return fmt.Sprintf("PersistentVolume %s is that of SharedVolume %s%s", s.volume.Name, owner, way)
		}
		return fmt.Sprintf("PersistentVolume %s exists and was not made for this SharedVolume%s", s.volume.Name, way)
	}
	if s.claim != nil && !s.ownsClaim() {
		return fmt.Sprintf("PersistentVolumeClaim %s exists and was not made for this SharedVolume%s", s.claim.Name, way)
	}
	return ""
}

// problem keeps pods from the data, as far as discovery knows.
type problem struct {
	reason   string // of the condition; "" for no problem
	message  string
	terminal bool // only an edit helps
	unknown  bool // another poll of the EFS API may help
}

func (s state) problem() problem {
	id, key := s.object.Spec.FileSystemID, keyOf(s.object)
	candidate, known := s.targets.FileSystems[id]
	tunnel, asked := s.targets.Tunnels[key]
	switch {
	case s.targets.Gone[id]:
		return problem{"FileSystemGone", fmt.Sprintf("file system %s does not exist any longer", id), true, false}
	case !known && s.targets.Excluded[id] != "":
		return problem{"FileSystemUnknown", fmt.Sprintf("file system %s exists, but %s", id, s.targets.Excluded[id]), false, true}
	case !known:
		return problem{"FileSystemUnknown", fmt.Sprintf("file system %s is not known: it does not exist, or the manager's settings leave it out", id), false, true}
	case candidate.Unusable != "":
		return problem{"FileSystemUnusable", fmt.Sprintf("file system %s: %s", id, candidate.Unusable), false, false}
	case key.AccessPoint != "" && !asked:
		return problem{"AccessPointUnknown", fmt.Sprintf("access point %s is being looked up", key.AccessPoint), false, false}
	case tunnel.Problem != "":
		return problem{"AccessPointUnusable", tunnel.Problem, tunnel.Terminal, true}
	case s.port() == 0:
		return problem{"NoPort", fmt.Sprintf("%s has no local port yet; the events of ConfigMap %s say why", key, wellknown.TargetsConfigMap), false, false}
	case s.object.Spec.IAM && !tunnel.IAM:
		return problem{"NoIdentity", fmt.Sprintf("the tunnel of %s does not present an IAM identity yet", key), false, false}
	}
	return problem{}
}

// port returns the local port of the object's tunnel, 0 while it has none.
func (s state) port() int {
	if key := keyOf(s.object); key.AccessPoint != "" {
		return s.targets.Tunnels[key].Port
	}
	return s.targets.Port(s.object.Spec.FileSystemID)
}

// pair returns the object's volume and claim. Pods may mount the claim, so it is kept.
func (s state) pair() volumes.Pair {
	volume, claim := newPair(s.object, s.port())
	return volumes.Pair{Volume: s.volume, Claim: s.claim, KeepClaim: true, WantVolume: volume, WantClaim: claim}
}

// newPair builds an object's volume and claim. The claim has no class: the provisioner of the cluster's
// default class would create another volume.
func newPair(o *v1alpha1.SharedVolume, port int) (*corev1.PersistentVolume, *corev1.PersistentVolumeClaim) {
	r := volumes.Reserved{
		VolumeMeta: metav1.ObjectMeta{
			Name:        volumeName(o),
			Labels:      map[string]string{wellknown.LabelManagedBy: wellknown.ManagerDeployment, wellknown.LabelFileSystemID: o.Spec.FileSystemID},
			Annotations: map[string]string{wellknown.AnnotationSharedVolume: nameOf(o), wellknown.AnnotationFileSystemID: o.Spec.FileSystemID},
		},
		ClaimMeta: metav1.ObjectMeta{
			Namespace: o.Namespace, Name: claimName(o),
			Labels:      map[string]string{wellknown.LabelManagedBy: wellknown.ManagerDeployment},
			Annotations: map[string]string{wellknown.AnnotationSharedVolume: nameOf(o)},
		},
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, MountOptions: strings.Split(wellknown.DefaultMountOptions, ","),
		Port: port, Path: o.Spec.Path,
	}
	if id := o.Spec.AccessPointID; id != "" {
		r.VolumeMeta.Annotations[wellknown.AnnotationAccessPointID], r.Path = id, "/" // EFS makes it the root of the tunnel
	}
	if o.Spec.ReadOnly {
		r.AccessModes[0] = corev1.ReadOnlyMany
	}
	return r.Objects()
}

// AnyNamespace is all namespaces in Paths.
const AnyNamespace = "*"

// Paths are the namespaces in which a SharedVolume may name a path. Who may create one there
// reaches everything on the file system, also other namespaces' volumes.
type Paths []string

// keyOf returns the tunnel of an object.
func keyOf(o *v1alpha1.SharedVolume) ports.Key {
	return ports.Key{FileSystem: o.Spec.FileSystemID, AccessPoint: o.Spec.AccessPointID}
}

func nameOf(o *v1alpha1.SharedVolume) string { return o.Namespace + "/" + o.Name }

func volumeName(o *v1alpha1.SharedVolume) string {
	return wellknown.SharedVolumePrefix + o.Namespace + "-" + o.Name
}

// namesFor returns the existing objects whose volume has a name. The name does not say where the
// namespace ends, so each hyphen may be the one between namespace and name.
func namesFor(volumeName string, exists func(namespaced string) bool) []string {
	rest, ok := strings.CutPrefix(volumeName, wellknown.SharedVolumePrefix)
	if !ok {
		return nil
	}
	var found []string
	for i, letter := range []byte(rest) {
		if letter != '-' {
			continue
		}
		if namespaced := rest[:i] + "/" + rest[i+1:]; exists(namespaced) {
			found = append(found, namespaced)
		}
	}
	return found
}

func claimName(o *v1alpha1.SharedVolume) string { return wellknown.SharedClaimPrefix + o.Name }

// Demand returns the access points and identities that objects need. One that is being deleted counts,
// because pods use it.
func Demand(objects []*v1alpha1.SharedVolume, known bool, paths Paths) ports.Demand {
	demand := ports.Demand{Known: known}
	for _, o := range objects {
		if paths.refusal(o) != "" {
			continue
		}
		if o.Spec.AccessPointID != "" {
			demand.AccessPoints = append(demand.AccessPoints, keyOf(o))
		}
		if o.Spec.IAM {
			demand.IAM = append(demand.IAM, keyOf(o))
		}
	}
	demand.AccessPoints, demand.IAM = sorted(demand.AccessPoints), sorted(demand.IAM)
	return demand
}

func sorted(keys []ports.Key) []ports.Key {
	slices.SortFunc(keys, func(a, b ports.Key) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(keys)
}

// refusal returns why an object is invalid, or "". The definition's schema refuses most of it before; but it may
// be an older one, or have been edited.
func (p Paths) refusal(o *v1alpha1.SharedVolume) string {
	if err := ports.CheckTargetID(o.Spec.FileSystemID); err != nil {
		return "spec.fileSystemID: " + err.Error()
	}
	if why := p.refusedSource(o); why != "" {
		return why
	}
	return refusedNames(o)
}

func (p Paths) refusedSource(o *v1alpha1.SharedVolume) string {
	point, path := o.Spec.AccessPointID, o.Spec.Path
	switch {
	case point != "" && path != "":
		return "spec.path: leave it out, as the access point says which directory it is"
	case point == "" && path == "":
		return "spec.accessPointID is missing: want an access point of the file system"
	case point != "":
		if err := efs.CheckAccessPointID(point); err != nil {
			return "spec.accessPointID: " + err.Error()
		}
		return ""
	case !slices.Contains(p, AnyNamespace) && !slices.Contains(p, o.Namespace):
		return fmt.Sprintf("spec.path: not allowed in namespace %s by the manager's setting --shared-volume-paths; use an access point", o.Namespace)
	}
	if err := operations.CheckPath(path); err != nil {
		return "spec.path: " + err.Error()
	}
	return ""
}

func refusedNames(o *v1alpha1.SharedVolume) string {
	for _, name := range []string{volumeName(o), claimName(o)} {
		if most := validation.DNS1123SubdomainMaxLength; len(name) > most {
			return fmt.Sprintf("the name is too long: %s has %d characters, more than %d; create it again under a shorter name", name, len(name), most)
		}
	}
	return ""
}
