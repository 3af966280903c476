package sharedvolumes

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// outline is the part of a plan that tests compare.
type outline struct {
	Changes string
	Phase   v1alpha1.Phase
	Reason  string // of the condition
	Message string // a part
	Repairs bool
	Warns   bool
	Polls   bool
}

func outlineOf(p plan, message string) outline {
	o := outline{Changes: actions(p), Phase: p.status.Phase, Warns: p.warning != "", Polls: p.poll}
	o.Repairs = slices.ContainsFunc(p.changes, func(c volumes.Change) bool { return c.Why != "" })
	if len(p.status.Conditions) > 0 {
		o.Reason = p.status.Conditions[0].Reason
	}
	o.Message = p.status.Message
	if message != "" && strings.Contains(p.status.Message, message) {
		o.Message = message
	}
	return o
}

func actions(p plan) string {
	var all []string
	for _, change := range p.changes {
		all = append(all, string(change.Action))
	}
	return strings.Join(all, ", ")
}

func TestDecide(t *testing.T) {
	pending, ready, failed, deleting := v1alpha1.Pending, v1alpha1.Ready, v1alpha1.Failed, v1alpha1.Deleting
	tests := map[string]struct {
		state state
		want  outline
	}{
		"one that is gone": {state{}, outline{}},
		"a new one gets its finalizer first": {
			stateWith(object(func(o *v1alpha1.SharedVolume) { o.Finalizers = nil })),
			outline{Changes: "add finalizer", Phase: pending, Reason: "Provisioning", Message: "being made"},
		},
		"then its volume": {stateWith(), outline{Changes: "create volume", Phase: pending, Reason: "Provisioning", Message: "being made"}},
		"then its claim": {
			stateWith(bound, claimGone, object(func(o *v1alpha1.SharedVolume) { o.Status.ClaimRef = nil }), volume(func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "" })),
			outline{Changes: "create claim", Phase: pending, Reason: "Provisioning", Message: "being made"},
		},
		"then the binder's turn comes": {
			stateWith(bound, volume(func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "" }), claim(func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimPending })),
			outline{Phase: pending, Reason: "Binding", Message: "claim pvc-data is being bound"},
		},
		"and it is ready": {stateWith(bound), outline{Phase: ready, Reason: "Bound"}},
		"one on another installation's file system is left to that one": {
			stateWith(others),
			outline{Warns: true},
		},
		"also when it is ready": {
			stateWith(bound, lost, others, object(func(o *v1alpha1.SharedVolume) { o.Status.Phase = ready })),
			outline{Phase: ready},
		},
		"a refused one is left alone": {
			stateWith(object(func(o *v1alpha1.SharedVolume) { o.Spec.AccessPointID = "x" })),
			outline{Phase: failed, Reason: "Refused", Message: "spec.accessPointID", Warns: true},
		},
		"nothing is known yet": {
			stateWith(func(s *state) { s.targets = targets.Snapshot{} }),
			outline{Phase: pending, Reason: "Waiting", Message: "the first poll of the file systems"},
		},
		"the table cannot be read": {
			stateWith(func(s *state) { s.targets = targets.Snapshot{Problem: "ConfigMap x"} }),
			outline{Phase: pending, Reason: "Waiting", Message: "ConfigMap x"},
		},
		"nothing is known yet of one that was ready": {
			stateWith(bound, func(s *state) { s.targets = targets.Snapshot{} }, object(func(o *v1alpha1.SharedVolume) { o.Status.Phase = ready })),
			outline{Phase: ready},
		},
		"an unknown file system": {
			stateWith(candidate(volumes.Candidate{}), func(s *state) { s.targets.FileSystems = nil }),
			outline{Phase: pending, Reason: "FileSystemUnknown", Message: "fs-1 is not known", Warns: true, Polls: true},
		},
		"a file system that cannot serve": {
			stateWith(candidate(volumes.Candidate{Unusable: "it is tired"})),
			outline{Phase: pending, Reason: "FileSystemUnusable", Message: "file system fs-1: it is tired", Warns: true},
		},
		"a file system that is gone": {
			stateWith(bound, func(s *state) { s.targets.Gone = map[string]bool{"fs-1": true} }),
			outline{Phase: failed, Reason: "FileSystemGone", Message: "fs-1 does not exist any longer", Warns: true},
		},
		"an access point that was not looked up": {
			stateWith(func(s *state) { s.targets.Tunnels = nil }),
			outline{Phase: pending, Reason: "AccessPointUnknown", Message: "fsap-1 is being looked up", Warns: true},
		},
		"an access point that is wrong": {
			stateWith(tunnel(targets.Tunnel{Problem: "nonsense", Terminal: true})),
			outline{Phase: failed, Reason: "AccessPointUnusable", Message: "nonsense", Warns: true, Polls: true},
		},
		"an access point without a port": {
			stateWith(tunnel(targets.Tunnel{})),
			outline{Phase: pending, Reason: "NoPort", Message: "has no local port yet", Warns: true},
		},
		"a tunnel without the identity that is asked for": {
			stateWith(object(func(o *v1alpha1.SharedVolume) { o.Spec.IAM = true })),
			outline{Phase: pending, Reason: "NoIdentity", Message: "does not present an IAM identity yet", Warns: true},
		},
		"a tunnel with it": {
			stateWith(object(func(o *v1alpha1.SharedVolume) { o.Spec.IAM = true }), tunnel(targets.Tunnel{Port: 20491, IAM: true})),
			outline{Changes: "create volume", Phase: pending, Reason: "Provisioning", Message: "being made"},
		},
		"what serves goes on while its file system rests": {
			stateWith(bound, candidate(volumes.Candidate{Unusable: "it is tired"})),
			outline{Phase: ready, Reason: "Bound", Message: "file system fs-1: it is tired", Warns: true},
		},
		"what serves fails when its access point is gone": {
			stateWith(bound, tunnel(targets.Tunnel{Port: 20491, Problem: "it is gone", Terminal: true})),
			outline{Phase: failed, Reason: "AccessPointUnusable", Message: "it is gone", Warns: true, Polls: true},
		},
		"and is still mended": {
			stateWith(bound, lost, tunnel(targets.Tunnel{Port: 20491, Problem: "it is gone", Terminal: true})),
			outline{Changes: "create volume", Phase: failed, Reason: "AccessPointUnusable", Message: "it is gone", Repairs: true, Warns: true, Polls: true},
		},
		"another owner's volume": {
			stateWith(func(s *state) { s.volume = &corev1.PersistentVolume{} }),
			outline{Phase: failed, Reason: "NameTaken", Message: "was not made for this SharedVolume", Warns: true},
		},
		"another SharedVolume's volume": {
			stateWith(bound, claimGone, volume(func(v *corev1.PersistentVolume) {
				v.Annotations[wellknown.AnnotationSharedVolume] = "team-data/x"
			})),
			outline{Phase: failed, Reason: "NameTaken", Message: "is that of SharedVolume team-data/x", Warns: true},
		},
		"another owner's claim": {
			stateWith(func(s *state) { s.claim = &corev1.PersistentVolumeClaim{} }),
			outline{Phase: failed, Reason: "NameTaken", Message: "was not made for this SharedVolume", Warns: true},
		},
		"a claim that only says that it is ours": {
			stateWith(bound, volumeGone, claim(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pvc-with-data" })),
			outline{Phase: failed, Reason: "NameTaken", Message: "was not made for this SharedVolume", Warns: true},
		},
		"a volume that was edited": {
			stateWith(bound, volume(func(v *corev1.PersistentVolume) { v.Spec.MountOptions = []string{"port=1"} })),
			outline{Changes: "update volume", Phase: ready, Reason: "Bound", Repairs: true},
		},
		"a volume of another source": {
			stateWith(bound, volume(func(v *corev1.PersistentVolume) { v.Spec.NFS.Path = "/secrets" })),
			outline{Changes: "delete claim", Phase: pending, Reason: "Repairing", Message: "has another source", Repairs: true},
		},
		"one whose claim is on its way out": {
			stateWith(bound, claimDeleted, volume(func(v *corev1.PersistentVolume) { v.Spec.NFS.Path = "/secrets" })),
			outline{Phase: pending, Reason: "Repairing", Message: "claim pvc-data was deleted"},
		},
		"and one whose claim is gone": {
			stateWith(bound, claimGone, volume(func(v *corev1.PersistentVolume) { v.Spec.NFS.Path = "/secrets" })),
			outline{Changes: "delete volume", Phase: pending, Reason: "Repairing", Message: "has another source", Repairs: true},
		},
		"a claim that was deleted": {
			stateWith(bound, claimDeleted),
			outline{Phase: pending, Reason: "Repairing", Message: "it goes when no pod uses it, and is then created again"},
		},
		"a claim that is missing": {
			stateWith(bound, claimGone, volume(func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "" })),
			outline{Changes: "create claim", Phase: pending, Reason: "Repairing", Message: "create claim: it is missing", Repairs: true},
		},
		"a claim without its annotation": {
			stateWith(bound, claim(func(c *corev1.PersistentVolumeClaim) { c.Annotations = nil })),
			outline{Changes: "update claim", Phase: ready, Reason: "Bound", Repairs: true},
		},
		"a volume that was deleted before its claim": {
			stateWith(bound, volumeDeleted),
			outline{Changes: "unprotect volume", Phase: pending, Reason: "Repairing", Message: "unprotect volume: it is being deleted", Repairs: true},
		},
		"one that others keep": {
			stateWith(bound, volumeDeleted, volume(func(v *corev1.PersistentVolume) { v.Finalizers = []string{"backup/keep"} })),
			outline{Phase: ready, Reason: "Bound"},
		},
		"a claim that has lost its volume": {
			stateWith(bound, lost),
			outline{Changes: "create volume", Phase: pending, Reason: "Repairing", Message: "create volume: it is missing", Repairs: true},
		},
		"a claim that does not know yet that it has its volume again": {
			stateWith(bound, claim(func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost })),
			outline{Changes: "update claim", Phase: pending, Reason: "Repairing", Message: "update claim: it has lost its volume", Repairs: true},
		},
		"whose claim was updated": {
			stateWith(bound, claim(func(c *corev1.PersistentVolumeClaim) {
				c.Status.Phase, c.Annotations[wellknown.AnnotationVolumeUID] = corev1.ClaimLost, "volume"
			})),
			outline{Phase: pending, Reason: "Binding", Message: "claim pvc-data is being bound"},
		},
		"one that is deleted loses its claim": {
			stateWith(bound, objectDeleted),
			outline{Changes: "delete claim", Phase: deleting, Reason: "ClaimInUse", Message: "claim pvc-data goes when no pod uses it"},
		},
		"when no pod uses it": {
			stateWith(bound, objectDeleted, claimDeleted),
			outline{Phase: deleting, Reason: "ClaimInUse", Message: "claim pvc-data goes when no pod uses it"},
		},
		"then its volume goes": {
			stateWith(bound, objectDeleted, claimGone),
			outline{Changes: "delete volume", Phase: deleting, Reason: "VolumeGoes", Message: "volume pv-team-data is being deleted"},
		},
		"which may take a moment": {
			stateWith(bound, objectDeleted, claimGone, volumeDeleted),
			outline{Phase: deleting, Reason: "VolumeGoes", Message: "volume pv-team-data is being deleted"},
		},
		"then its finalizer": {stateWith(objectDeleted), outline{Changes: "remove finalizer"}},
		"which is all where others have the names": {
			stateWith(objectDeleted, func(s *state) { s.volume, s.claim = &corev1.PersistentVolume{}, &corev1.PersistentVolumeClaim{} }),
			outline{Changes: "remove finalizer"},
		},
		"also when it was refused in the meantime": {
			stateWith(bound, objectDeleted, func(s *state) { s.targets = targets.Snapshot{} }, object(ofPath("/data"))),
			outline{Changes: "delete claim", Phase: deleting, Reason: "ClaimInUse", Message: "claim pvc-data goes when no pod uses it"},
		},
		"one that others keep is none of our business": {
			stateWith(objectDeleted, object(func(o *v1alpha1.SharedVolume) { o.Finalizers = []string{"backup/keep"} })), outline{},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := planFor(tt.state)
			if diff := cmp.Diff(tt.want, outlineOf(p, tt.want.Message)); diff != "" {
				t.Errorf("plan mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPlansConverge: each plan brings the object nearer to its spec, and then none changes anything.
func TestPlansConverge(t *testing.T) {
	tests := map[string]struct {
		state state
		want  string // changes, in order
	}{
		"a new one":         {stateWith(object(func(o *v1alpha1.SharedVolume) { o.Finalizers = nil })), "add finalizer, create volume, create claim"},
		"nothing to do":     {stateWith(bound), ""},
		"a lost volume":     {stateWith(bound, lost), "create volume"},
		"a deleted volume":  {stateWith(bound, volumeDeleted), "unprotect volume, create volume"},
		"a lost claim":      {stateWith(bound, claimGone), "update volume, create claim"},
		"an edited volume":  {stateWith(bound, volume(func(v *corev1.PersistentVolume) { v.Annotations, v.Spec.MountOptions = nil, nil })), "update volume"},
		"no claimRef":       {stateWith(bound, volume(func(v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil })), "update volume"},
		"another's uid":     {stateWith(bound, volume(func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "x" })), "update volume"},
		"a foreign source":  {stateWith(bound, volume(func(v *corev1.PersistentVolume) { v.Spec.NFS.Server = "10.0.0.1" })), "delete claim, delete volume, create volume, create claim"},
		"an end":            {stateWith(bound, objectDeleted), "delete claim, delete volume, remove finalizer"},
		"an end of nothing": {stateWith(objectDeleted), "remove finalizer"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var made []string
			s := tt.state
			for range 10 {
				p := planFor(s)
				if len(p.changes) == 0 {
					break
				}
				made, s = append(made, actions(p)), apply(s, p)
			}
			if got := strings.Join(made, ", "); got != tt.want {
				t.Errorf("got changes %q, want %q", got, tt.want)
			}
			if s.object == nil {
				return
			}
			s = apply(s, planFor(s))
			if p := planFor(s); len(p.changes) > 0 || !equality.Semantic.DeepEqual(p.status, s.object.Status) || p.status.Phase != v1alpha1.Ready {
				t.Errorf("the end is %+v", p)
			}
		})
	}
}

// TestStatusStaysWhereNothingChanged: a later sync must not write a later time.
func TestStatusStaysWhereNothingChanged(t *testing.T) {
	s := stateWith(bound)
	s.object.Status = planFor(s).status
	s.now = noon.AddDate(0, 0, 1)
	if p := planFor(s); !equality.Semantic.DeepEqual(p.status, s.object.Status) {
		t.Errorf("status mismatch (-before +after):\n%s", cmp.Diff(s.object.Status, p.status))
	}
	s.claim.Status.Phase = corev1.ClaimPending
	if p := planFor(s); !p.status.Conditions[0].LastTransitionTime.Time.Equal(s.now) {
		t.Errorf("got %+v", p.status.Conditions)
	}
}
