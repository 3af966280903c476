package decide

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

const point1 = "fsap-00000001"

// fakePoints answers the same for each volume.
type fakePoints struct {
	made             string
	deleted, missing bool
	none             bool // after GiveUp
	gid              int
	problem          Verdict
}

func (f fakePoints) Made(string) (string, Verdict)           { return f.made, f.problem }
func (f fakePoints) GiveUp(volumes.Point) bool               { return f.none }
func (f fakePoints) Deleted(string) (bool, Verdict)          { return f.deleted, f.problem }
func (f fakePoints) IsMissing(_, _ string) bool              { return f.missing }
func (f fakePoints) GID(_, _ string, _, _ int) (int, string) { return f.gid, "its turn" }

// ofDriver gives the claim a class of the AWS EFS CSI driver; gid "" has one allocated.
func ofDriver(gid string) func(*fixture) {
	return func(w *fixture) {
		w.Class.Parameters = map[string]string{"provisioningMode": "efs-ap", "fileSystemId": fs1, "directoryPerms": "700", "uid": "1000"}
		if gid != "" {
			w.Class.Parameters["gid"] = gid
		}
	}
}

func withPoints(f fakePoints) func(*fixture) { return func(w *fixture) { w.Points = f } }

// pointSetup returns the setup that the claim's class asks for.
func pointSetup(t *testing.T) operations.Operation {
	t.Helper()
	p := Decide(newState(ofDriver("1000"), withPoints(fakePoints{})))
	if len(p.Pending) != 1 {
		t.Fatalf("the claim waits for %d operations: %+v", len(p.Pending), p)
	}
	return p.Pending[0].Operation
}

func TestClaimWithAccessPoint(t *testing.T) {
	failure := Verdict{status.AccessPointFailed, "no permission"}
	tunnel := func(port int, problem string) func(*fixture) {
		return func(w *fixture) {
			w.Targets.Tunnels = map[ports.Key]targets.Tunnel{{FileSystem: fs1, AccessPoint: point1}: {Port: port, Problem: problem}}
		}
	}
	for name, tt := range map[string]struct {
		points  fakePoints
		edit    func(*fixture)
		change  string // what the plan does, in a word
		verdict string // its cause
	}{
		"is created after its directory":     {fakePoints{}, tunnel(0, ""), "point", status.PointIsMade},
		"cannot be created":                  {fakePoints{problem: failure}, tunnel(0, ""), "point", status.AccessPointFailed},
		"waits for a port":                   {fakePoints{made: point1}, tunnel(0, ""), "", status.PointIsMade},
		"gets no port":                       {fakePoints{made: point1}, tunnel(0, "no port is left"), "", status.WaitsForFileSystem},
		"has a port":                         {fakePoints{made: point1}, tunnel(20500, ""), "volume", ""},
		"has a port, and its claim is gone":  {fakePoints{made: point1}, func(w *fixture) { tunnel(20500, "")(w); withoutClaim(w) }, "volume", ""},
		"has no port, and its claim is gone": {fakePoints{made: point1}, withoutClaim, "volume without port", ""},
		"may be made, and its claim is gone": {fakePoints{}, withoutClaim, "", ""},
		"is not made, and its claim is gone": {fakePoints{none: true, problem: failure}, withoutClaim, "volume without access point", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(newState(ofDriver("1000"), withPoints(tt.points), withAttempts(ended(pointSetup(t), done)), tt.edit))
			got := ""
			for _, change := range p.Changes {
				switch c := change.(type) {
				case CreatePoint:
					got = "point"
					if c.Point.GID != 1000 || c.Point.FileSystemID != fs1 || c.Point.Tags[wellknown.TagCluster] != cluster {
						t.Errorf("creates %+v", c.Point)
					}
				case CreateVolume:
					got = "volume"
					switch {
					case c.AccessPointID == "" && c.PointPort == 0:
						got += " without access point"
					case c.AccessPointID == point1 && c.PointPort == 0:
						got += " without port"
					case c.AccessPointID != point1 || c.PointPort != 20500:
						t.Errorf("creates %+v", c)
					}
				}
			}
			if got != tt.change || p.Verdict.Cause != tt.verdict {
				t.Errorf("plan has %q with verdict %+v, want %q with %s", got, p.Verdict, tt.change, tt.verdict)
			}
		})
	}
}

// TestDirectoryOfAnotherNamespaceHasAdviceForTheClass: the worker's is for classes of ours.
func TestDirectoryOfAnotherNamespaceHasAdviceForTheClass(t *testing.T) {
	taken := operations.Result{State: operations.Failed, Reason: operations.OwnedByOtherNamespace, Message: "set share_across_namespaces in the class"}
	if why := ended(pointSetup(t), taken).Why(); !strings.Contains(why, "a class with provisioningMode cannot do that: write ${.PVC.namespace}") {
		t.Errorf("it says %q", why)
	}
	if why := ended(operations.Operation{}, taken).Why(); why != taken.Message {
		t.Errorf("for a class of ours it says %q", why)
	}
}

func TestAllocatedGIDOfAccessPoint(t *testing.T) {
	p := Decide(newState(ofDriver(""), withPoints(fakePoints{gid: 50001})))
	if len(p.Pending) != 1 || p.Pending[0].Operation.UID != 1000 || p.Pending[0].Operation.GID != 50001 {
		t.Errorf("got %+v", p.Pending)
	}
	p = Decide(newState(ofDriver(""), withPoints(fakePoints{})))
	if len(p.Pending) != 0 || !strings.Contains(p.Verdict.Message, "its turn") {
		t.Errorf("without a gid: %+v", p)
	}
}

// volumeOnPoint returns the volume of the claim on an access point, with a cleanup that is done.
func volumeOnPoint(t *testing.T, phase corev1.PersistentVolumePhase, points fakePoints, edit func(*Volume)) Plan {
	t.Helper()
	object, err := volumes.FromOperation(pointSetup(t), 20500, 0, provisioner)
	if err != nil {
		t.Fatal(err)
	}
	volumes.OnPoint(object, point1, 20500, false)
	object.Status.Phase, object.CreationTimestamp.Time = phase, now.Add(-24*time.Hour)
	v := Volume{Volume: volumes.Read(object, provisioner)}
	edit(&v)
	cleanup := ended(volumes.Cleanup(v.Volume, cluster), done)
	return Decide(newState(ofDriver("1000"), withoutClaim, withPoints(points), withAttempts(cleanup), func(w *fixture) { w.Volumes = []Volume{v} }))
}

func TestAccessPointOfReleasedVolume(t *testing.T) {
	released := corev1.VolumeReleased
	for name, tt := range map[string]struct {
		phase  corev1.PersistentVolumePhase
		points fakePoints
		edit   func(*Volume)
		want   string
	}{
		"is deleted before the volume":      {released, fakePoints{}, func(*Volume) {}, "point"},
		"goes with the volume":              {released, fakePoints{deleted: true}, func(*Volume) {}, "volume"},
		"is kept, and that is reported":     {released, fakePoints{deleted: true, problem: Verdict{status.AccessPointFailed, "kept"}}, func(*Volume) {}, "VolumeDeleteSkipped volume"},
		"stays while another volume has it": {released, fakePoints{}, func(v *Volume) { v.PointShared = true }, "volume"},
		"stays with policy Retain": {released, fakePoints{}, func(v *Volume) {
			v.Policy = corev1.PersistentVolumeReclaimRetain
		}, ""},
		"cannot be deleted": {released, fakePoints{problem: Verdict{status.AccessPointFailed, "throttled"}}, func(*Volume) {}, "point AccessPointFailed"},
		"is missing":        {corev1.VolumeBound, fakePoints{missing: true}, func(*Volume) {}, " AccessPointMissing"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			for _, change := range volumeOnPoint(t, tt.phase, tt.points, tt.edit).Changes {
				switch c := change.(type) {
				case Warn:
					if c.Reason == wellknown.EventVolumeDeleteSkipped {
						got = c.Reason + " "
					}
				case DeletePoint:
					got = "point"
				case DeleteVolume:
					got += "volume"
				case Annotate:
					text, _ := c.Annotations[wellknown.AnnotationProblem].(string)
					cause, _, _ := strings.Cut(text, ":")
					got += " " + cause
				}
			}
			if got != tt.want {
				t.Errorf("plan has %q, want %q", got, tt.want)
			}
		})
	}
}
