package volumes

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// AccessPoints holds what a class of the AWS EFS CSI driver requests of its volumes' access points.
type AccessPoints struct {
	UID, GID       int // Unset has one allocated
	GIDMin, GIDMax int // of those that are allocated
	IAM            bool
	Tagged         bool

	unique bool // a directory of its own for each claim, whatever the pattern
}

// Unset is the uid or gid of a class that has one allocated for each access point.
const Unset = -1

// The defaults of the driver's documentation, and the limits of the root directory of an access point.
const (
	driverGIDMin = 50000
	driverGIDMax = 7000000

	maxPointPathBytes = 100
	maxPointPathDepth = 4
)

const (
	parameterMode    = "provisioningMode"
	modeAccessPoints = "efs-ap"
)

// driverParameters returns the parameters of the driver that hold in a class with its provisioningMode.
func driverParameters() []parameter {
	return []parameter{
		// `efs-ap`: each volume has an access point (required)
		{parameterMode, setProvisioningMode},
		// the file system's id (required)
		{"fileSystemId", setFileSystem},
		// octal mode of the directory (required)
		{"directoryPerms", setMode},
		// the access point's user, and owner of the directory (default allocated)
		{"uid", number(0, func(c *Class) *int { return &c.AccessPoints.UID })},
		{"gid", number(0, func(c *Class) *int { return &c.AccessPoints.GID })},
		// both or neither: the range from which a number is allocated, the lowest that no access point of the file system has. Where `uid` or `gid` is
		// missing it is that, too; with both, none is allocated (default driverGIDMin, driverGIDMax)
		{"gidRangeStart", number(1, func(c *Class) *int { return &c.AccessPoints.GIDMin })},
		{"gidRangeEnd", number(1, func(c *Class) *int { return &c.AccessPoints.GIDMax })},
		// directory that contains the volumes; slashes at its ends do not matter (default /)
		{"basePath", setDriverBasePath},
		// path below it; the variables of `path_pattern`; slashes at its ends do not matter (default /${.PV.name})
		{"subPathPattern", setDriverPattern},
		// append `-` and the claim's uid to a `subPathPattern` (default true)
		{"ensureUniqueDirectory", boolean(func(c *Class) *bool { return &c.AccessPoints.unique })},
		// tag the access point: `efs.csi.aws.com/cluster`, as the driver does, and below `efs-stunnel.gnuthought.com/` the `cluster`, `claim` and
		// `volume`. The driver's flag `--tags` has no counterpart: a role whose policy wants other tags cannot create access points here (default true)
		{"enableTagging", boolean(func(c *Class) *bool { return &c.AccessPoints.Tagged })},
		// only `false` (default false)
		{"reuseAccessPoint", setReuse},
		// volumes on One Zone file systems get a node affinity for that zone
		{"enforceZoneAffinity", boolean(func(c *Class) *bool { return &c.EnforceZoneAffinity })},
	}
}

// MakesAccessPoints reports whether a class, of this provisioner or of the driver, makes access points.
func MakesAccessPoints(class *storagev1.StorageClass) bool {
	return class.Parameters[parameterMode] == modeAccessPoints
}

func setProvisioningMode(_ *Class, value string) error {
	if value != modeAccessPoints {
		return errors.New("write " + modeAccessPoints + ", or leave it out, with the parameters of this provisioner: every volume is a directory then")
	}
	return nil
}

func setFileSystem(c *Class, value string) error {
	if value == wellknown.DefaultFileSystemID || setDefaultFileSystem(c, value) != nil {
		return errors.New("write a file system's id such as fs-0123456789abcdef0")
	}
	c.FileSystemIDs = []string{value}
	return nil
}

// setDriverBasePath takes the root for an empty path, and any slashes, as the driver does, which joins and cleans paths.
func setDriverBasePath(c *Class, value string) error {
	return setBasePath(c, path.Clean("/"+value))
}

// setDriverPattern takes any slashes, too: in the driver's documentation, the default begins with one.
func setDriverPattern(c *Class, value string) error {
	pattern := strings.TrimPrefix(path.Clean("/"+value), "/")
	if pattern == "" {
		return errors.New("write the name of a directory, and what is above it as basePath")
	}
	return setPattern(c, pattern)
}

func setReuse(_ *Class, value string) error {
	if value != "false" {
		return errors.New(`leave it out: write a subPathPattern such as ${.PVC.namespace}/${.PVC.name} with ensureUniqueDirectory: "false", uid and gid, ` +
			"so that a claim that is made again has the directory of the one before, through an access point of its own")
	}
	return nil
}

func (c *Class) setDriverParameters(given map[string]string) []string {
	if mixed := ownParameters(given); len(mixed) > 0 {
		return []string{fmt.Sprintf("parameter %s is for classes of the AWS EFS CSI driver, and %s for those of this provisioner: leave out one or the other",
			parameterMode, strings.Join(mixed, ", "))}
	}
	c.AccessPoints = &AccessPoints{UID: Unset, GID: Unset, GIDMin: driverGIDMin, GIDMax: driverGIDMax, Tagged: true, unique: true}
	c.BasePath = "/"
	c.Pattern, _ = ParsePattern("${" + variableVolume + "}")
	findings := c.set(driverParameters(), given)
	if _, ok := given["subPathPattern"]; ok && c.AccessPoints.unique && len(findings) == 0 {
		c.Pattern, _ = ParsePattern(c.Pattern.text + "-${" + variableUID + "}")
	}
	return append(findings, c.driverContradictions(given)...)
}

// ownParameters returns the parameters that only classes of ours have.
func ownParameters(given map[string]string) []string {
	shared := parameterNamesOf(driverParameters())
	return slices.DeleteFunc(slices.Sorted(maps.Keys(given)), func(key string) bool {
		return !slices.Contains(parameterNamesOf(parameters()), key) || slices.Contains(shared, key)
	})
}

func (c *Class) driverContradictions(given map[string]string) (findings []string) {
	has := func(key string) bool { _, ok := given[key]; return ok }
	for _, key := range []string{"fileSystemId", "directoryPerms"} {
		if !has(key) {
			findings = append(findings, "parameter "+key+" is missing: "+parameterMode+" "+modeAccessPoints+" requires it")
		}
	}
	switch p := c.AccessPoints; {
	case has("gidRangeStart") != has("gidRangeEnd"):
		findings = append(findings, "write gidRangeStart and gidRangeEnd both, or neither")
	case p.GIDMin > p.GIDMax:
		findings = append(findings, fmt.Sprintf("parameter gidRangeStart is %d: it must not be above gidRangeEnd, %d", p.GIDMin, p.GIDMax))
	}
	return findings
}

// Allocates reports whether each access point gets a gid of its own.
func (p *AccessPoints) Allocates() bool { return p != nil && (p.UID == Unset || p.GID == Unset) }

// user returns the user of an access point; gid is the one that was allocated for it.
func (p *AccessPoints) user(gid int) (uid, group int) {
	uid, group = p.UID, p.GID
	if uid == Unset {
		uid = gid
	}
	if group == Unset {
		group = gid
	}
	return uid, group
}

func (c Class) checkPoint(claim Claim) []string {
	if c.AccessPoints == nil {
		return nil
	}
	var findings []string
	if depth := strings.Count(claim.Path, "/"); len(claim.Path) > maxPointPathBytes || depth > maxPointPathDepth {
		findings = append(findings, fmt.Sprintf("the directory %s has %d bytes and %d levels, and that of an access point at most %d and %d: shorten basePath or subPathPattern of storage class %s",
			quoted(claim.Path), len(claim.Path), depth, maxPointPathBytes, maxPointPathDepth, quoted(c.Name)))
	}
	if c.AccessPoints.Allocates() && (claim.Source != "" || claim.Restore != "") {
		findings = append(findings, fmt.Sprintf("data of another claim keeps its owners, whose files the access point's user could not write: use a class with uid and gid, which storage class %s has not", quoted(c.Name)))
	}
	return findings
}

// driverMountOptions leaves out the options that efs-utils takes and that hold here: volumes are always encrypted,
// and iam has the tunnel of the access point present an identity.
func (c *Class) driverMountOptions(options []string) (rest []string) {
	for option := range strings.SplitSeq(strings.Join(options, ","), ",") {
		switch strings.TrimSpace(option) {
		case "tls":
		case "iam":
			c.AccessPoints.IAM = true
		default:
			rest = append(rest, option)
		}
	}
	return rest
}

// pointRecord is the part of a record that an access point is made of.
type pointRecord struct {
	UID      int  `json:"uid"`
	GID      int  `json:"gid"`
	Number   int  `json:"number,omitempty"` // that was allocated for it
	IAM      bool `json:"iam,omitempty"`
	Untagged bool `json:"untagged,omitempty"`
}

// Point describes the access point of a volume.
type Point struct {
	FileSystemID string
	Volume       string // which is its client token
	Path         string
	UID, GID     int
	Allocated    int  // of these, the number that no other access point has; 0 if the class has both
	IAM          bool // its tunnel presents an identity
	Tags         map[string]string
}

// PointOf returns the access point that an operation of Begin requests; ok is false where it requests none.
func PointOf(o operations.Operation) (p Point, ok bool) {
	r, err := decodeRecord(o)
	if err != nil || r.Point == nil {
		return Point{}, false
	}
	p = Point{FileSystemID: r.FileSystemID, Volume: o.Volume, Path: o.Path, UID: r.Point.UID, GID: r.Point.GID, Allocated: r.Point.Number, IAM: r.Point.IAM}
	if !r.Point.Untagged {
		p.Tags = map[string]string{
			wellknown.TagDriver:  wellknown.ValueTrue,
			wellknown.TagCluster: o.Cluster,
			wellknown.TagClaim:   operations.Truncate(o.Namespace+"/"+o.Claim, maxTagBytes),
			wellknown.TagVolume:  o.Volume,
		}
	}
	return p, true
}

const maxTagBytes = 256

// OnPoint makes the volume of a directory one of an access point on it. With port 0, the manager adds the option when the
// access point has a port.
func OnPoint(volume *corev1.PersistentVolume, id string, port int, iam bool) {
	volume.Annotations[wellknown.AnnotationAccessPointID] = id
	if iam {
		volume.Annotations[wellknown.AnnotationIAM] = wellknown.ValueTrue
	}
	volume.Spec.NFS.Path = "/" // EFS makes the directory the root of the tunnel
	volume.Spec.MountOptions = withPort(volume.Spec.MountOptions, port)
}
