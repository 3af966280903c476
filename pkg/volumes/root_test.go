package volumes_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

const managerNamespace = "efs-stunnel"

func TestRootVolume(t *testing.T) {
	filesystem := corev1.PersistentVolumeFilesystem
	want := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "efs-stunnel-fs-1",
			Annotations: map[string]string{"efs-stunnel.gnuthought.com/file-system-id": "fs-1"},
			Labels:      map[string]string{"file_system_id": "fs-1", "root_key": "fs-1"},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{"storage": resource.MustParse("1Gi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{"ReadWriteMany"},
			PersistentVolumeReclaimPolicy: "Retain",
			StorageClassName:              "efs-stunnel-system",
			VolumeMode:                    &filesystem,
			MountOptions: []string{"vers=4.1", "rsize=1048576", "wsize=1048576", "soft", "timeo=600", "retrans=2", "noresvport",
				"lookupcache=none", "acdirmin=0", "acdirmax=0", "port=20490"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "127.0.0.1", Path: "/"}},
			ClaimRef:               &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "efs-stunnel", Name: "efs-stunnel-fs-1"},
		},
	}
	got, _ := volumes.RootObjects("fs-1", 20490, managerNamespace)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("volume mismatch (-want +got):\n%s", diff)
	}
}

func TestRootClaim(t *testing.T) {
	class := "efs-stunnel-system"
	want := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: "efs-stunnel-fs-1", Namespace: "efs-stunnel",
			Labels: map[string]string{"file_system_id": "fs-1", "root_key": "fs-1"},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{"ReadWriteMany"},
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}},
			StorageClassName: &class,
			VolumeName:       "efs-stunnel-fs-1",
		},
	}
	_, got := volumes.RootObjects("fs-1", 20490, managerNamespace)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("claim mismatch (-want +got):\n%s", diff)
	}
}

// rootPair returns a pair that is bound and right, but for what the edits change.
func rootPair(edits ...func(*volumes.RootPair)) volumes.RootPair {
	volume, claim := volumes.RootObjects("fs-1", 20490, managerNamespace)
	pair := volumes.RootPair{FileSystemID: "fs-1", Port: 20490, Namespace: managerNamespace, Volume: volume, Claim: claim}
	pair.Claim.UID = "root-uid"
	pair.Claim.Status.Phase = corev1.ClaimBound
	pair.Volume.Spec.ClaimRef.UID, pair.Volume.Spec.ClaimRef.ResourceVersion = "root-uid", "7"
	pair.Volume.Status.Phase = corev1.VolumeBound
	for _, edit := range edits {
		edit(&pair)
	}
	return pair
}

// rootDamage is everything that is done to root volumes and claims, each by its story.
func rootDamage() map[string]func(*volumes.RootPair) {
	now := metav1.Now()
	block, other := corev1.PersistentVolumeBlock, "other"
	return map[string]func(*volumes.RootPair){
		"nothing":                      func(*volumes.RootPair) {},
		"nothing made yet":             func(p *volumes.RootPair) { p.Volume, p.Claim = nil, nil },
		"volume gone":                  func(p *volumes.RootPair) { p.Volume, p.Claim.Status.Phase = nil, corev1.ClaimLost },
		"volume gone, claim not lost":  func(p *volumes.RootPair) { p.Volume = nil },
		"claim gone":                   func(p *volumes.RootPair) { p.Claim, p.Volume.Status.Phase = nil, corev1.VolumeReleased },
		"claim lost":                   func(p *volumes.RootPair) { p.Claim.Status.Phase = corev1.ClaimLost },
		"claim being deleted":          func(p *volumes.RootPair) { p.Claim.DeletionTimestamp = &now },
		"claim lost and being deleted": func(p *volumes.RootPair) { p.Claim.DeletionTimestamp = &now; p.Claim.Status.Phase = corev1.ClaimLost },
		"claim of another volume":      func(p *volumes.RootPair) { p.Claim.Spec.VolumeName = "x" },
		"claim of another class":       func(p *volumes.RootPair) { p.Claim.Spec.StorageClassName = &other },
		"claim of no class":            func(p *volumes.RootPair) { p.Claim.Spec.StorageClassName = nil },
		"claim made again": func(p *volumes.RootPair) {
			p.Claim.UID = "second"
			p.Claim.Status.Phase = corev1.ClaimPending
			p.Volume.Status.Phase = corev1.VolumeReleased
		},
		"volume being deleted":          func(p *volumes.RootPair) { p.Volume.DeletionTimestamp = &now },
		"volume and claim both deleted": func(p *volumes.RootPair) { p.Volume.DeletionTimestamp = &now; p.Claim.DeletionTimestamp = &now },
		"volume of another owner's claim": func(p *volumes.RootPair) {
			p.Volume.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: "team", Name: "mine", UID: "s"}
		},
		"volume without claimRef":  func(p *volumes.RootPair) { p.Volume.Spec.ClaimRef = nil },
		"volume of another path":   func(p *volumes.RootPair) { p.Volume.Spec.NFS.Path = "/x" },
		"volume of another server": func(p *volumes.RootPair) { p.Volume.Spec.NFS.Server = "10.0.0.1" },
		"volume of another source": func(p *volumes.RootPair) {
			p.Volume.Spec.NFS = nil
			p.Volume.Spec.HostPath = &corev1.HostPathVolumeSource{Path: "/"}
		},
		"volume that is read-only":                  func(p *volumes.RootPair) { p.Volume.Spec.NFS.ReadOnly = true },
		"volume of blocks":                          func(p *volumes.RootPair) { p.Volume.Spec.VolumeMode = &block },
		"volume with another port":                  func(p *volumes.RootPair) { p.Volume.Spec.MountOptions = []string{"port=20491"} },
		"volume with the version spelled otherwise": func(p *volumes.RootPair) { p.Volume.Spec.MountOptions[0] = "nfsvers=4.1" },
		"volume with another version":               func(p *volumes.RootPair) { p.Volume.Spec.MountOptions[0] = "nfsvers=4.0" },
		"volume with the old options": func(p *volumes.RootPair) {
			metav1.SetMetaDataAnnotation(&p.Volume.ObjectMeta, corev1.MountOptionAnnotation, "port=1")
		},
		"volume to delete":        func(p *volumes.RootPair) { p.Volume.Spec.PersistentVolumeReclaimPolicy = "Delete" },
		"volume of another class": func(p *volumes.RootPair) { p.Volume.Spec.StorageClassName = "efs" },
		"volume with other modes": func(p *volumes.RootPair) {
			p.Volume.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{"ReadWriteOnce"}
		},
		"volume too small": func(p *volumes.RootPair) {
			p.Volume.Spec.Capacity = corev1.ResourceList{"storage": resource.MustParse("1Mi")}
		},
		"volume without labels":       func(p *volumes.RootPair) { p.Volume.Labels, p.Volume.Annotations = nil, nil },
		"volume with another's label": func(p *volumes.RootPair) { metav1.SetMetaDataLabel(&p.Volume.ObjectMeta, "file_system_id", "fs-2") },
		"volume with more than we wrote": func(p *volumes.RootPair) {
			metav1.SetMetaDataLabel(&p.Volume.ObjectMeta, "root_key", "k3y")
			metav1.SetMetaDataLabel(&p.Volume.ObjectMeta, "a", "b")
			metav1.SetMetaDataAnnotation(&p.Volume.ObjectMeta, "b", "c")
			p.Volume.Spec.VolumeMode = nil
			p.Volume.Spec.AccessModes = append(p.Volume.Spec.AccessModes, "ReadWriteOnce")
		},
	}
}

// TestRecordsOutliveTheirObject: when the trash is due, and how far a survey is, is known to nothing but these two.
func TestRecordsOutliveTheirObject(t *testing.T) {
	const next = "2026-01-02T03:04:05Z"
	remembers := func(object metav1.Object) {
		object.SetAnnotations(map[string]string{wellknown.AnnotationNextSweep: next, wellknown.AnnotationSurvey: "{}"})
	}
	for name, edit := range map[string]func(*volumes.RootPair){
		"claim gone":  func(p *volumes.RootPair) { remembers(p.Volume); p.Claim = nil },
		"volume gone": func(p *volumes.RootPair) { remembers(p.Claim); p.Volume = nil },
	} {
		var made metav1.Object
		for _, change := range rootPair(edit).Changes() {
			if change.Action == volumes.CreateClaim {
				made = change.Claim
			}
			if change.Action == volumes.CreateVolume {
				made = change.Volume
			}
		}
		if made == nil || made.GetAnnotations()[wellknown.AnnotationNextSweep] != next || made.GetAnnotations()[wellknown.AnnotationSurvey] != "{}" {
			t.Errorf("%s: made %+v", name, made)
		}
	}
}

func TestRootChanges(t *testing.T) {
	wants := map[string]string{ // by story; none for those not listed
		"nothing made yet":                "create volume: it is missing",
		"volume gone":                     "create volume: it is missing",
		"volume gone, claim not lost":     "create volume: it is missing",
		"claim gone":                      "update volume: its claimRef has the wrong uid, create claim: it is missing",
		"claim lost":                      "delete claim: it has lost its volume",
		"claim of another volume":         "delete claim: it is for another volume",
		"claim of another class":          "delete claim: it is of another storage class",
		"claim of no class":               "delete claim: it is of another storage class",
		"claim made again":                "update volume: its claimRef has the wrong uid",
		"volume being deleted":            "delete claim: its volume is being deleted",
		"volume of another owner's claim": "update volume: claim team/mine has it",
		"volume without claimRef":         "update volume: any claim could have it",
		"volume of another path":          "delete claim: the volume has another source, delete volume: the volume has another source",
		"volume of another server":        "delete claim: the volume has another source, delete volume: the volume has another source",
		"volume of another source":        "delete claim: the volume has another source, delete volume: the volume has another source",
		"volume that is read-only":        "delete claim: the volume has another source, delete volume: the volume has another source",
		"volume of blocks":                "delete claim: the volume is not a file system, delete volume: the volume is not a file system",
		"volume with another port":        "update volume: its mount options were edited",
		"volume with another version":     "update volume: its mount options were edited",
		"volume with the old options":     "update volume: it was edited",
		"volume to delete":                "update volume: it was edited",
		"volume of another class":         "update volume: it was edited",
		"volume with other modes":         "update volume: it was edited",
		"volume too small":                "update volume: it was edited",
		"volume without labels":           "update volume: it was edited",
		"volume with another's label":     "update volume: it was edited",
	}
	for story, damage := range rootDamage() {
		t.Run(story, func(t *testing.T) {
			var got []string
			for _, c := range rootPair(damage).Changes() {
				got = append(got, c.String())
			}
			if got := strings.Join(got, ", "); got != wants[story] {
				t.Errorf("got %q, want %q", got, wants[story])
			}
		})
	}
}

func TestRootReady(t *testing.T) {
	tests := map[string]struct {
		damage func(*volumes.RootPair)
		want   string
	}{
		"a bound pair":           {func(*volumes.RootPair) {}, ""},
		"a claim being deleted":  {rootDamage()["claim being deleted"], "the root claim is being deleted"},
		"a lost claim":           {rootDamage()["claim lost"], "delete claim efs-stunnel-fs-1: it has lost its volume"},
		"a volume being deleted": {rootDamage()["volume and claim both deleted"], "the root volume is being deleted"},
		"a pair not bound yet":   {func(p *volumes.RootPair) { p.Claim.Status.Phase = corev1.ClaimPending }, "the root claim is not bound yet"},
		"another installation's": {
			func(p *volumes.RootPair) { p.Volume.Spec.ClaimRef.Namespace = "other" },
			"file system fs-1 belongs to the installation in namespace other: uninstall one of the two, " +
				"or separate their file systems by --file-system-ids or --file-system-tags",
		},
		"no port yet": {func(p *volumes.RootPair) { p.Port, p.Volume, p.Claim = 0, nil, nil }, "the file system has no local port yet"},
		"nothing":     {rootDamage()["nothing made yet"], "create volume efs-stunnel-fs-1: it is missing"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pair := rootPair(tt.damage)
			if got := pair.Ready(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if pair.Port == 0 && len(pair.Changes()) > 0 {
				t.Error("there are changes without a port to name")
			}
		})
	}
}

func TestOtherInstallation(t *testing.T) {
	for story, c := range map[string]struct {
		edit func(*corev1.PersistentVolume)
		want string
	}{
		"ours":                          {func(*corev1.PersistentVolume) {}, ""},
		"another namespace's":           {func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.Namespace = "other" }, "other"},
		"another namespace's, edited":   {func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.Namespace, v.Spec.StorageClassName = "other", "" }, "other"},
		"reserved for a tenant's claim": {func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.Namespace, v.Spec.ClaimRef.Name = "team", "mine" }, ""},
		"without a claimRef":            {func(v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil }, ""},
		"a user's volume of a root name": {func(v *corev1.PersistentVolume) {
			v.Spec.ClaimRef.Namespace, v.Spec.StorageClassName, v.Labels = "team", "", nil
		}, ""},
	} {
		volume, _ := volumes.RootObjects("fs-1", 20490, managerNamespace)
		c.edit(volume)
		if got := volumes.OtherInstallation(volume, managerNamespace); got != c.want {
			t.Errorf("%s: got %q, want %q", story, got, c.want)
		}
	}
	if got := volumes.OtherInstallation(nil, managerNamespace); got != "" {
		t.Errorf("no volume: got %q", got)
	}
}

// Every damage, and every two of them, is corrected; nothing is written once all is right, and
// no volume is ever written without our claimRef.
func TestRootPairsConverge(t *testing.T) {
	for first, damage := range rootDamage() {
		for second, more := range rootDamage() {
			pair := rootPair(damage)
			if pair.Volume != nil && pair.Volume.Spec.NFS != nil && pair.Claim != nil {
				more(&pair)
			}
			if rounds := converge(t, &pair); rounds > 6 {
				t.Errorf("%s and %s: not right after %d rounds", first, second, rounds)
			}
			if why := pair.Ready(); why != "" || len(pair.Changes()) > 0 {
				t.Errorf("%s and %s: %s, %v", first, second, why, pair.Changes())
			}
		}
	}
}

// converge plays the apiserver and the binder until nothing changes.
func converge(t *testing.T, pair *volumes.RootPair) (rounds int) {
	t.Helper()
	for rounds = 1; rounds < 10; rounds++ {
		changes := pair.Changes()
		for _, c := range changes {
			if c.Volume != nil && (c.Volume.Spec.ClaimRef == nil || c.Volume.Spec.ClaimRef.Name != wellknown.RootVolumePrefix+"fs-1") {
				t.Fatalf("%s writes a volume with claimRef %v", c.Action, c.Volume.Spec.ClaimRef)
			}
			applyRoot(pair, c)
		}
		settle(pair)
		if len(changes) == 0 && pair.Ready() == "" {
			break
		}
	}
	return rounds
}

func applyRoot(pair *volumes.RootPair, c volumes.Change) {
	now := metav1.Now()
	switch c.Action {
	case volumes.CreateVolume, volumes.UpdateVolume:
		pair.Volume = c.Volume
	case volumes.DeleteVolume:
		pair.Volume.DeletionTimestamp = &now
	case volumes.CreateClaim:
		pair.Claim = c.Claim
		pair.Claim.UID = "made"
	case volumes.DeleteClaim:
		pair.Claim.DeletionTimestamp = &now
	}
}

// settle ends what is being deleted, and binds what belongs together.
func settle(pair *volumes.RootPair) {
	if pair.Claim != nil && pair.Claim.DeletionTimestamp != nil {
		pair.Claim = nil
	}
	if pair.Volume != nil && pair.Volume.DeletionTimestamp != nil && pair.Claim == nil {
		pair.Volume = nil
	}
	if pair.Volume == nil || pair.Claim == nil || pair.Volume.Spec.ClaimRef == nil {
		return
	}
	ref := pair.Volume.Spec.ClaimRef
	mine := slices.Contains([]string{"", string(pair.Claim.UID)}, string(ref.UID)) && ref.Name == pair.Claim.Name
	if mine && pair.Claim.Spec.VolumeName == pair.Volume.Name && pair.Claim.Status.Phase != corev1.ClaimLost {
		ref.UID = pair.Claim.UID
		pair.Claim.Status.Phase, pair.Volume.Status.Phase = corev1.ClaimBound, corev1.VolumeBound
	}
}
