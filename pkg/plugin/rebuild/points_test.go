package rebuild_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/plugin/rebuild"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// onPoint is an owner whose class makes access points.
func onPoint(o *requests.Owned) { o.Class = "points" }

// planPoint plans the volume of an owner of a class with access points.
func planPoint(t *testing.T, cluster rebuild.Cluster, points []rebuild.AccessPoint) rebuild.Item {
	t.Helper()
	cluster.Points = points
	r := rebuild.Rebuild{Cluster: cluster, Choice: choice(), Of: lost}
	items := r.Plan(map[string][]requests.Owned{fs1: {owned(1, onPoint)}})
	if len(items) != 1 {
		t.Fatalf("%+v", items)
	}
	return items[0]
}

// TestVolumeOfAnAccessPointIsRebuiltOnIt with the port of the table, or with none until the manager gives it one.
func TestVolumeOfAnAccessPointIsRebuiltOnIt(t *testing.T) {
	other := rebuild.AccessPoint{ID: "fsap-0", FileSystem: fs1, Path: "/team/d1", Token: "another"}
	own := rebuild.AccessPoint{ID: "fsap-1", FileSystem: fs1, Path: "/team/d1", Token: volumeOf(1)}
	for port, option := range map[int]string{0: "", 20499: "port=20499"} {
		cluster := newCluster(nil)
		if port != 0 {
			cluster.Targets[fs1] = ports.Target{Port: 20490, AccessPoints: map[string]ports.AccessPoint{"fsap-1": {Port: port}}}
		}
		item := planPoint(t, cluster, []rebuild.AccessPoint{other, own})
		if item.State != rebuild.Planned || item.AccessPoint != "fsap-1" || does(item) != "adopt volume claim" {
			t.Fatalf("%+v", item)
		}
		volume := ports.VolumeOf(item.NewVolume)
		options := strings.Join(item.NewVolume.Spec.MountOptions, ",")
		if volume.On.AccessPoint != "fsap-1" || volume.Port != port || !strings.HasSuffix(options, option) || strings.Contains(options, "port=0") {
			t.Errorf("port %d: %+v with %s", port, volume, options)
		}
		if a := item.NewVolume.Annotations; item.NewVolume.Spec.NFS.Path != "/" || a[wellknown.AnnotationPath] != "/team/d1" || a[wellknown.AnnotationIAM] != "true" {
			t.Errorf("port %d: %+v", port, item.NewVolume)
		}
	}
}

func TestVolumeWhoseAccessPointIsNotKnownIsRefused(t *testing.T) {
	volumes, _ := made(t)
	right := rebuild.AccessPoint{ID: "fsap-1", FileSystem: fs1, Path: "/team/d1", Token: volumeOf(1)}
	edited := func(edit func(*rebuild.AccessPoint)) []rebuild.AccessPoint {
		point := right
		edit(&point)
		return []rebuild.AccessPoint{point}
	}
	tests := map[string]struct {
		cluster rebuild.Cluster
		points  []rebuild.AccessPoint
		want    string
	}{
		"nobody has listed them":    {newCluster(nil), nil, `storage class "points" makes access points: say which there are with --access-points`},
		"it is gone":                {newCluster(nil), []rebuild.AccessPoint{}, "with --client-token " + volumeOf(1)},
		"on another file system":    {newCluster(nil), edited(func(p *rebuild.AccessPoint) { p.FileSystem = fs2 }), "no access point"},
		"on another directory":      {newCluster(nil), edited(func(p *rebuild.AccessPoint) { p.Path = "/team" }), "no access point"},
		"the volume is a directory": {newCluster(volumes), []rebuild.AccessPoint{right}, "has another access point, or none"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if item := planPoint(t, tt.cluster, tt.points); item.State != rebuild.Refused || !strings.Contains(item.Note, tt.want) || does(item) != "" {
				t.Errorf("%+v, want %q", item, tt.want)
			}
		})
	}
}

// TestVolumeHasTheSizeOfItsClaim if that exists, as the apiserver wants the volume to be large enough.
func TestVolumeHasTheSizeOfItsClaim(t *testing.T) {
	claim := claimWith(volumeOf(1))
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("7Gi")}
	for want, cluster := range map[string]rebuild.Cluster{"7Gi": newCluster(nil, claim), "1Gi": newCluster(nil)} {
		r := rebuild.Rebuild{Cluster: cluster, Choice: choice(), Of: lost}
		items := r.Plan(map[string][]requests.Owned{fs1: {owned(1)}})
		if size := items[0].NewVolume.Spec.Capacity[corev1.ResourceStorage]; size.String() != want {
			t.Errorf("the volume has %s, want %s", size.String(), want)
		}
	}
}

// TestImportedVolumeKeepsTheAccessPointOfTheDriver if its class makes access points; otherwise it is a directory.
func TestImportedVolumeKeepsTheAccessPointOfTheDriver(t *testing.T) {
	driver := rebuild.AccessPoint{ID: "fsap-1", FileSystem: fs1, Path: "/old", Token: "the driver's"}
	tests := map[string]struct {
		class, point string
		points       []rebuild.AccessPoint
		want         string // the access point, or the note
	}{
		"on the driver's":             {"points", "fsap-1", []rebuild.AccessPoint{driver}, "fsap-1"},
		"on a directory":              {"efs", "fsap-1", []rebuild.AccessPoint{driver}, ""},
		"whose directory is another":  {"points", "fsap-1", []rebuild.AccessPoint{{ID: "fsap-1", FileSystem: fs1, Path: "/else"}}, "no access point in --access-points"},
		"of which no volume is known": {"points", "", []rebuild.AccessPoint{driver}, "with --client-token " + wellknown.VolumePrefix},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			i := rebuild.Import{Cluster: newCluster(nil), Choice: choice(), FileSystem: fs1}
			i.Class, i.Points = tt.class, tt.points
			item := i.Plan([]rebuild.Wanted{{Namespace: "team", Claim: "data", Path: "/old", AccessPoint: tt.point}}, []requests.Directory{{Path: "/old"}}, nil)[0]
			if item.State == rebuild.Planned && item.AccessPoint == tt.want && item.NewVolume.Annotations[wellknown.AnnotationAccessPointID] == tt.want {
				return
			}
			if item.State != rebuild.Refused || !strings.Contains(item.Note, tt.want) {
				t.Errorf("%+v, want %q", item, tt.want)
			}
		})
	}
}

// TestClaimKeepsItsNameOnTheDriversAccessPoint once it is deleted: its volume, which is retained, says which it had.
func TestClaimKeepsItsNameOnTheDriversAccessPoint(t *testing.T) {
	released := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
		ClaimRef:               &corev1.ObjectReference{Namespace: "team", Name: "data-web-0", UID: "gone"},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "efs.csi.aws.com", VolumeHandle: "efs:" + fs1 + "::fsap-1"}},
	}}
	released.Name, released.Status.Phase = "pvc-of-the-driver", corev1.VolumeReleased
	points := []rebuild.AccessPoint{{ID: "fsap-1", FileSystem: fs1, Path: "/old", Token: released.Name}}
	known := rebuild.AWSDriver.KnownClaims(map[string]*corev1.PersistentVolume{released.Name: released}, fs1, points)
	for trust, state := range map[bool]rebuild.State{false: rebuild.Whose, true: rebuild.Planned} {
		i := rebuild.Import{Cluster: newCluster(nil), Choice: choice(), FileSystem: fs1, TrustNames: trust}
		i.Class, i.Points = "points", points
		item := i.Plan(rebuild.WantedOf(points, known), []requests.Directory{{Path: "/old"}}, nil)[0]
		if item.State != state || trust && (item.AccessPoint != "fsap-1" || item.NewClaim == nil || item.NewClaim.Name != "data-web-0") {
			t.Errorf("with trust %v: %+v", trust, item)
		}
	}
}
