package rebuild

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
)

// ParsePair reads NAMESPACE/CLAIM=/path. Without a namespace the claim is of the default one.
func ParsePair(text, namespace string) (Wanted, error) {
	name, path, ok := strings.Cut(text, "=")
	w := Wanted{Namespace: namespace, Claim: name, Path: path}
	if before, after, both := strings.Cut(name, "/"); both {
		w.Namespace, w.Claim = before, after
	}
	if !ok || w.Namespace == "" || w.Claim == "" || !strings.HasPrefix(path, "/") {
		return Wanted{}, fmt.Errorf("%q: want NAMESPACE/CLAIM=/path", text)
	}
	if len(path) > 1 {
		w.Path = strings.TrimSuffix(path, "/")
	}
	return w, nil
}

// ParseList reads a pair from each line. Empty lines, and those that begin with #, are left out.
func ParseList(text, namespace string) ([]Wanted, error) {
	var wanted []Wanted
	for number, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		w, err := ParsePair(line, namespace)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number+1, err)
		}
		wanted = append(wanted, w)
	}
	return wanted, nil
}

// The names in a template.
const (
	namespaceName = "{namespace}"
	claimName     = "{claim}"
)

// Template is a path with names of namespace and claim, and * and ? for any characters of a component:
// /{namespace}/{claim}, or /{namespace}-{claim}-pvc-*. Without a claim's name, the claim has the name of the
// directory.
type Template struct{ text string }

// ParseTemplate checks a template.
func ParseTemplate(text string) (Template, error) {
	t := Template{strings.TrimSuffix(text, "/")}
	if !utf8.ValidString(text) {
		return t, fmt.Errorf("the pattern %q is not valid UTF-8", text)
	}
	for _, name := range []string{namespaceName, claimName} {
		if strings.Count(t.text, name) > 1 {
			return t, fmt.Errorf("the pattern %q has %s twice", text, name)
		}
	}
	if rest := strings.NewReplacer(namespaceName, "", claimName, "").Replace(t.text); strings.ContainsAny(rest, `[]{}\`) {
		return t, fmt.Errorf("the pattern %q: want names, *, ?, %s and %s", text, namespaceName, claimName)
	}
	return t, requests.CheckPattern(t.Pattern())
}

// Pattern returns the pattern for requests.Directories.
func (t Template) Pattern() string {
	return strings.NewReplacer(namespaceName, "*", claimName, "*").Replace(t.text)
}

// NameAll reads namespace and claim from the paths of directories; those without a namespace are of the default
// one, if there is one. A directory of which a volume of another provisioner is known is that volume's claim's,
// whatever it is called.
func (t Template) NameAll(found []requests.Directory, known map[string]Wanted, namespace string) []Wanted {
	shortest, longest := t.expression("?"), t.expression("")
	var wanted []Wanted
	for _, d := range found {
		w, ok := known[d.Path]
		if !ok {
			w = name(d.Path, namespace, shortest, longest)
		}
		wanted = append(wanted, w)
	}
	return wanted
}

// name guesses the claim of a path. A path that fits several claims is none's: its namespace may be one that is
// not in this cluster, or not any more.
func name(path, namespace string, shortest, longest *regexp.Regexp) Wanted {
	w := Wanted{Path: path}
	first, last := shortest.FindStringSubmatch(path), longest.FindStringSubmatch(path)
	one, other := claimIn(path, namespace, shortest, first), claimIn(path, namespace, longest, last)
	switch {
	case first == nil:
		w.Doubt = "no bound volume of the cluster has it, and its name fits no claim"
	case !slices.Equal(first, last):
		w.Doubt = fmt.Sprintf("no bound volume of the cluster has it, and its name fits several claims, as %s and %s", one, other)
	case one.Namespace == "":
		w.Doubt = "no bound volume of the cluster has it, and its name has no namespace"
	default:
		w.Namespace, w.Claim = one.Namespace, one.Name
		w.Doubt = fmt.Sprintf("no bound volume of the cluster has it, and only its name says that it is claim %s's", one)
	}
	return w
}

func claimIn(path, namespace string, expression *regexp.Regexp, match []string) types.NamespacedName {
	claim := types.NamespacedName{Namespace: namespace, Name: path[strings.LastIndexByte(path, '/')+1:]}
	if match == nil {
		return claim
	}
	if i := expression.SubexpIndex("namespace"); i > 0 {
		claim.Namespace = match[i]
	}
	if i := expression.SubexpIndex("claim"); i > 0 {
		claim.Name = match[i]
	}
	return claim
}

// expression matches paths. With lazy "?", names and wildcards are as short as can be from left to right, else as
// long as can be: if both are equal, a path is read in one way only. Wildcards count where they are beside a name.
func (t Template) expression(lazy string) *regexp.Regexp {
	var components []string
	for component := range strings.SplitSeq(t.text, "/") {
		wildcard := "[^/]*"
		if strings.Contains(component, "{") {
			wildcard = "([^/]*" + lazy + ")"
		}
		components = append(components, strings.NewReplacer(
			regexp.QuoteMeta(namespaceName), "(?P<namespace>[a-z0-9](?:[-a-z0-9]*"+lazy+"[a-z0-9])?"+lazy+")",
			regexp.QuoteMeta(claimName), "(?P<claim>[a-z0-9](?:[-a-z0-9.]*"+lazy+"[a-z0-9])?"+lazy+")",
			`\*`, wildcard, `\?`, "[^/]",
		).Replace(regexp.QuoteMeta(component)))
	}
	return regexp.MustCompile("^" + strings.Join(components, "/") + "$")
}

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
		return cmp.Or(base, "/persistentvolumes") + "/" + claimName + "-pvc-*"
	case NFSSubdir:
		return base + "/" + namespaceName + "-" + claimName + "-pvc-*"
	}
	return ""
}

// AccessPoint is one of the AWS driver's, or of ours.
type AccessPoint struct{ ID, FileSystem, Path, Token string }

// ParseAccessPoints reads what `aws efs describe-access-points` prints, and leaves out other file systems'.
func ParseAccessPoints(data []byte, fileSystems []string) ([]AccessPoint, error) {
	var list struct {
		AccessPoints []struct {
			AccessPointID string `json:"AccessPointId"`
			FileSystemID  string `json:"FileSystemId"`
			ClientToken   string
			RootDirectory struct{ Path string }
		}
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("want the JSON of aws efs describe-access-points: %w", err)
	}
	if list.AccessPoints == nil {
		return nil, errors.New("it has no AccessPoints: want the JSON of aws efs describe-access-points")
	}
	points := []AccessPoint{}
	for _, point := range list.AccessPoints {
		if !slices.Contains(fileSystems, point.FileSystemID) {
			continue
		}
		if err := efs.CheckAccessPointID(point.AccessPointID); err != nil {
			return nil, err
		}
		points = append(points, AccessPoint{point.AccessPointID, point.FileSystemID, point.RootDirectory.Path, point.ClientToken})
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
		at, point := p.pathOf(volume, fileSystem, paths)
		ref := volume.Spec.ClaimRef
		if at == "" || ref == nil {
			continue
		}
		w := Wanted{Namespace: ref.Namespace, Claim: ref.Name, Path: at, AccessPoint: point}
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

// pathOf returns the path of a volume on a file system, or "", and the access point whose directory it is.
func (p Provisioner) pathOf(volume *corev1.PersistentVolume, fileSystem string, points map[string]string) (at, point string) {
	switch source := volume.Spec.PersistentVolumeSource; {
	case p != AWSDriver && source.NFS != nil && strings.HasPrefix(source.NFS.Server, fileSystem+"."):
		return path.Clean(source.NFS.Path), ""
	case p == AWSDriver && source.CSI != nil && source.CSI.Driver == "efs.csi.aws.com":
		// [efs:]FILE-SYSTEM[:PATH[:ACCESS-POINT]]
		parts := append(strings.Split(strings.TrimPrefix(source.CSI.VolumeHandle, "efs:"), ":"), "", "")
		below, point := parts[1], parts[2]
		switch {
		case parts[0] != fileSystem, point == "" && below == "":
		case point == "":
			return path.Clean("/" + below), ""
		case points[point] == "": // its directory is not known
		case path.Clean("/"+below) == "/":
			return points[point], point
		default:
			return path.Join(points[point], below), ""
		}
	}
	return "", ""
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
