package volumes_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// driverClass returns the class of the AWS EFS CSI driver that tutorials show, with changes; "" leaves one out.
func driverClass(changes map[string]string, options ...string) *storagev1.StorageClass {
	parameters := map[string]string{
		"provisioningMode": "efs-ap", "fileSystemId": "fs-09a658ebf884ec043", "directoryPerms": "700", "uid": "1000", "gid": "1000",
		"gidRangeStart": "1000", "gidRangeEnd": "2000", "basePath": "/dynamic_provisioning",
	}
	maps.Copy(parameters, changes)
	maps.DeleteFunc(parameters, func(_, value string) bool { return value == "" })
	return newClass(parameters, func(c *storagev1.StorageClass) { c.MountOptions = options })
}

func TestClassOfTheDriverMakesAccessPoints(t *testing.T) {
	class := parseClass(t, driverClass(nil, "tls", "iam"))
	claim := parseClaim(t, newClaim(func(*corev1.PersistentVolumeClaim) {}), class)
	operation := begin(t, claim, class, volumes.Choice{FileSystemID: "fs-09a658ebf884ec043"})
	name := volumes.VolumeName(claim.UID)
	if want := "/dynamic_provisioning/" + name; operation.Path != want || operation.Mode != "0700" || operation.UID != 1000 || operation.GID != 1000 {
		t.Errorf("got directory %s %+v, want %s", operation.Path, operation.Directory, want)
	}
	point, ok := volumes.PointOf(operation)
	if !ok || point.UID != 1000 || point.GID != 1000 || !point.IAM || point.Volume != name || point.Path != operation.Path {
		t.Errorf("got access point %+v, %v", point, ok)
	}
	if want := []string{wellknown.TagDriver, wellknown.TagClaim, wellknown.TagCluster, wellknown.TagVolume}; !slices.Equal(slices.Sorted(maps.Keys(point.Tags)), slices.Sorted(slices.Values(want))) {
		t.Errorf("got tags %v", point.Tags)
	}
	volume, err := volumes.FromOperation(operation, 20500, 0, provisioner)
	if err != nil {
		t.Fatal(err)
	}
	volumes.OnPoint(volume, "fsap-1", 20501, true)
	read := volumes.Read(volume, provisioner)
	if volume.Spec.NFS.Path != "/" || read.Path != operation.Path || read.AccessPointID != "fsap-1" || read.Port != 20501 || read.Kind != volumes.Provisioned || read.Problem != "" {
		t.Errorf("got %+v", read)
	}
	if slices.Contains(volume.Spec.MountOptions, "tls") || slices.Contains(volume.Spec.MountOptions, "iam") {
		t.Errorf("mounted with %v", volume.Spec.MountOptions)
	}
	delete(volume.Annotations, wellknown.AnnotationAccessPointID)
	if volumes.Read(volume, provisioner).Problem == "" {
		t.Error("the root of a file system passes for a directory")
	}
}

func TestClassOfTheDriver(t *testing.T) {
	for name, tt := range map[string]struct {
		parameters map[string]string
		pattern    string
		allocates  bool
	}{
		"as it is":                     {nil, "${.PV.name}", false},
		"a path pattern":               {map[string]string{"subPathPattern": "${.PVC.namespace}/x"}, "${.PVC.namespace}/x-${.PVC.uid}", false},
		"a path pattern that may meet": {map[string]string{"subPathPattern": "x", "ensureUniqueDirectory": "false"}, "x", false},
		"the driver's default path":    {map[string]string{"subPathPattern": "/${.PV.name}", "ensureUniqueDirectory": "false"}, "${.PV.name}", false},
		"a path with more slashes":     {map[string]string{"subPathPattern": "//${.PVC.namespace}//x/", "basePath": "a//b/"}, "${.PVC.namespace}/x-${.PVC.uid}", false},
		"no user":                      {map[string]string{"uid": "", "gid": ""}, "${.PV.name}", true},
		"no group":                     {map[string]string{"gid": ""}, "${.PV.name}", true},
	} {
		t.Run(name, func(t *testing.T) {
			class := parseClass(t, driverClass(tt.parameters))
			if class.Pattern.String() != tt.pattern || class.AccessPoints.Allocates() != tt.allocates {
				t.Errorf("got pattern %s, allocates %v", class.Pattern, class.AccessPoints.Allocates())
			}
		})
	}
}

func TestAllocatedUserOfAnAccessPoint(t *testing.T) {
	class := parseClass(t, driverClass(map[string]string{"uid": "", "gid": ""}))
	claim := parseClaim(t, newClaim(func(*corev1.PersistentVolumeClaim) {}), class)
	claim.GID = 1007
	operation := begin(t, claim, class, volumes.Choice{FileSystemID: "fs-1"})
	if point, _ := volumes.PointOf(operation); point.UID != 1007 || point.GID != 1007 || point.Allocated != 1007 || operation.UID != 1007 || operation.GID != 1007 {
		t.Errorf("got %+v for directory %+v", point, operation.Directory)
	}
}

func TestClassOfTheDriverIsRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		parameters map[string]string
		want       string
	}{
		"another mode":         {map[string]string{"provisioningMode": "s3files-ap"}, `parameter provisioningMode is "s3files-ap": write efs-ap`},
		"our parameters":       {map[string]string{"base_path": "/x", "gidAllocate": "true"}, "parameter provisioningMode is for classes of the AWS EFS CSI driver, and base_path, gidAllocate for those of this provisioner: leave out one or the other"},
		"no file system":       {map[string]string{"fileSystemId": ""}, "parameter fileSystemId is missing"},
		"no mode of directory": {map[string]string{"directoryPerms": ""}, "parameter directoryPerms is missing"},
		"half a range":         {map[string]string{"gidRangeEnd": ""}, "write gidRangeStart and gidRangeEnd both, or neither"},
		"an empty range":       {map[string]string{"gidRangeEnd": "999"}, "must not be above gidRangeEnd, 999"},
		"a reused one":         {map[string]string{"reuseAccessPoint": "true"}, "write a subPathPattern"},
		"a file system in a Secret": {map[string]string{"fileSystemIdSecretRef": "a/b/c"},
			`unknown parameter "fileSystemIdSecretRef": use fileSystemId with the id itself`},
		"another account":  {map[string]string{"awsRoleArn": "x"}, "pin file systems of other accounts"},
		"a wrong spelling": {map[string]string{"base-path": "/x"}, "use basePath"},
		"no directory":     {map[string]string{"subPathPattern": "/"}, "write the name of a directory, and what is above it as basePath"},
		"one of volumes made by hand": {map[string]string{"encryptInTransit": "true"},
			`unknown parameter "encryptInTransit": leave it out: volumes are always encrypted in transit`},
		"one of a server without tunnels": {map[string]string{"share": "/x"}, `unknown parameter "share": allowed are basePath, `},
		"an unknown one":                  {map[string]string{"x": "y"}, "allowed are basePath, "},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := volumes.ParseClass(driverClass(tt.parameters))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want …%s…", err, tt.want)
			}
		})
	}
}

func TestClaimOfTheDriversClassIsRefused(t *testing.T) {
	long := driverClass(map[string]string{"basePath": "/" + strings.Repeat("x", 80)})
	deep := driverClass(map[string]string{"basePath": "/a/b/c/d"})
	allocating := driverClass(map[string]string{"uid": ""})
	for name, tt := range map[string]struct {
		class *storagev1.StorageClass
		edit  func(*corev1.PersistentVolumeClaim)
		want  string
	}{
		"a long path":    {long, func(*corev1.PersistentVolumeClaim) {}, "shorten basePath"},
		"a deep path":    {deep, func(*corev1.PersistentVolumeClaim) {}, "has 49 bytes and 5 levels"},
		"a restored one": {allocating, annotated(wellknown.AnnotationRestore, "01234567-89ab-cdef-0123-456789abcdef"), "use a class with uid and gid"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := volumes.ParseClaim(newClaim(tt.edit), parseClass(t, tt.class))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want …%s…", err, tt.want)
			}
		})
	}
}
