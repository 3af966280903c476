package rebuild

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Provisioner is one whose directories are imported.
type Provisioner string

// The provisioners.
const (
	EFSProvisioner Provisioner = "efs-provisioner"
	NFSSubdir      Provisioner = "nfs-subdir-external-provisioner"
	AWSDriver      Provisioner = "aws-efs-csi-driver"
)

// Provisioners returns the names of all provisioners.
func Provisioners() []string {
	return []string{string(EFSProvisioner), string(NFSSubdir), string(AWSDriver)}
}

// Template returns the pattern of a provisioner's directories below its base; the base "" is the provisioner's
// default. It returns "" where directories are not named after claims.
func (p Provisioner) Template(base string) string {
	base = strings.TrimSuffix(base, "/")
	switch p {
	case EFSProvisioner:
		if base == "" {
			base = "/persistentvolumes"
		}
		return base + "/" + claimName + "-pvc-*"
	case NFSSubdir:
		return base + "/" + namespaceName + "-" + claimName + "-pvc-*"
	case AWSDriver:
	}
	return ""
}

// AccessPoint is one of the AWS driver's.
type AccessPoint struct{ ID, Path string }

// ParseAccessPoints reads what `aws efs describe-access-points` prints, and leaves out other file systems'.
func ParseAccessPoints(data []byte, fileSystem string) ([]AccessPoint, error) {
	var list struct {
		AccessPoints []struct {
			AccessPointID string `json:"AccessPointId"`
			FileSystemID  string `json:"FileSystemId"`
			RootDirectory struct{ Path string }
		}
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("want the JSON of aws efs describe-access-points: %w", err)
	}
	if list.AccessPoints == nil {
		return nil, errors.New("it has no AccessPoints: want the JSON of aws efs describe-access-points")
	}
	var points []AccessPoint
	for _, point := range list.AccessPoints {
		if point.FileSystemID == fileSystem {
			points = append(points, AccessPoint{point.AccessPointID, point.RootDirectory.Path})
		}
	}
	return points, nil
}

// KnownClaims returns the claims that the provisioner's volumes were made for, by the path on a file system. Only a
// bound volume vouches for its claim: the namespace of any other one may have been deleted, and made again.
func (p Provisioner) KnownClaims(volumes map[string]*corev1.PersistentVolume, fileSystem string, points []AccessPoint) map[string]Wanted {
	paths := map[string]string{}
	for _, point := range points {
		paths[point.ID] = point.Path
	}
	bound, others := map[string]Wanted{}, map[string]Wanted{}
	for _, name := range slices.Sorted(maps.Keys(volumes)) {
		volume, known := volumes[name], bound
		at, ref := p.pathOf(volume, fileSystem, paths), volume.Spec.ClaimRef
		if at == "" || ref == nil {
			continue
		}
		w := Wanted{Namespace: ref.Namespace, Claim: ref.Name, Path: at}
		if gid, err := strconv.Atoi(volume.Annotations[wellknown.AnnotationGID]); err == nil && gid > 0 {
			w.GID = gid
		}
		if volume.Status.Phase != corev1.VolumeBound {
			known = others
			w.Doubt = fmt.Sprintf("only volume %s, which is not bound, says that it is claim %s/%s's", volume.Name, w.Namespace, w.Claim)
		}
		if other, ok := known[at]; ok && (other.Namespace != w.Namespace || other.Claim != w.Claim) {
			w = Wanted{Path: at, Doubt: "several volumes of the cluster have it"}
		}
		known[at] = w
	}
	maps.Copy(others, bound)
	return others
}

// pathOf returns the path of a volume on a file system, or "".
func (p Provisioner) pathOf(volume *corev1.PersistentVolume, fileSystem string, points map[string]string) string {
	switch source := volume.Spec.PersistentVolumeSource; {
	case p != AWSDriver && source.NFS != nil && strings.HasPrefix(source.NFS.Server, fileSystem+"."):
		return path.Clean(source.NFS.Path)
	case p == AWSDriver && source.CSI != nil && source.CSI.Driver == "efs.csi.aws.com":
		// [efs:]FILE-SYSTEM[:PATH[:ACCESS-POINT]]
		parts := strings.Split(strings.TrimPrefix(source.CSI.VolumeHandle, "efs:"), ":")
		switch {
		case parts[0] != fileSystem:
			return ""
		case len(parts) > 2 && parts[2] != "":
			return below(points[parts[2]], parts[1])
		case len(parts) > 1 && parts[1] != "":
			return path.Clean("/" + parts[1])
		}
	}
	return ""
}

// below returns a path in the directory of an access point, "" if that is not known.
func below(point, subPath string) string {
	if point == "" {
		return ""
	}
	return path.Join(point, subPath)
}

// WantedOf returns the directories of access points. One of which no volume is known says so.
func WantedOf(points []AccessPoint, known map[string]Wanted) []Wanted {
	var wanted []Wanted
	for _, point := range points {
		w, ok := known[point.Path]
		if !ok {
			w = Wanted{Path: point.Path, Doubt: "no volume of the cluster has access point " + point.ID}
		}
		wanted = append(wanted, w)
	}
	for at, w := range known {
		if !slices.ContainsFunc(points, func(point AccessPoint) bool { return point.Path == at }) {
			wanted = append(wanted, w)
		}
	}
	return wanted
}
