package rebuild_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/plugin/reading"
	"gnuthought.com/efs-stunnel/pkg/plugin/rebuild"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

const (
	fs1  = "fs-0123456789abcdef0"
	fs2  = "fs-0123456789abcdef1"
	own  = "c1"
	lost = "c2"
)

// uid returns the uid of a claim.
func uid(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

func volumeOf(n int) string { return wellknown.VolumePrefix + uid(n) }

func newCluster(volumes []corev1.PersistentVolume, claims ...corev1.PersistentVolumeClaim) rebuild.Cluster {
	namespaces := []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "team", UID: "team-uid"}}, {ObjectMeta: metav1.ObjectMeta{Name: "team-b", UID: "b-uid"}}}
	classes := []storagev1.StorageClass{
		{ObjectMeta: metav1.ObjectMeta{Name: "efs"}, Provisioner: wellknown.DefaultProvisioner},
		{ObjectMeta: metav1.ObjectMeta{Name: "zonal"}, Provisioner: wellknown.DefaultProvisioner, Parameters: map[string]string{"enforce_zone_affinity": "true"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "wrong"}, Provisioner: wellknown.DefaultProvisioner, Parameters: map[string]string{"what": "1"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Provisioner: "example.com/other"},
		{
			ObjectMeta: metav1.ObjectMeta{Name: "points"}, Provisioner: wellknown.DefaultProvisioner, MountOptions: []string{"tls", "iam"},
			Parameters: map[string]string{"provisioningMode": "efs-ap", "fileSystemId": fs1, "directoryPerms": "700"},
		},
	}
	targets := map[string]ports.Target{fs1: {Port: 20490}, fs2: {Port: 20491, AvailabilityZone: "us-east-1a"}}
	return rebuild.Cluster{
		UID: own, Provisioner: wellknown.DefaultProvisioner, Targets: targets,
		Volumes:    reading.Index(pointers(volumes), (*corev1.PersistentVolume).GetName),
		Claims:     reading.Index(pointers(claims), reading.NameOf),
		Namespaces: reading.Index(pointers(namespaces), (*corev1.Namespace).GetName),
		Classes:    reading.Index(pointers(classes), (*storagev1.StorageClass).GetName),
	}
}

func pointers[T any](items []T) (all []*T) {
	for i := range items {
		all = append(all, &items[i])
	}
	return all
}

func choice() rebuild.Choice {
	return rebuild.Choice{Policy: corev1.PersistentVolumeReclaimRetain, Size: resource.MustParse("1Gi"), AccessMode: corev1.ReadWriteMany}
}

// owned returns an entry of the lost cluster.
func owned(n int, edits ...func(*requests.Owned)) requests.Owned {
	o := requests.Owned{
		Path: fmt.Sprintf("/team/d%d", n), Volume: volumeOf(n), Cluster: lost, Namespace: "team", NamespaceUID: "lost-team-uid", Class: "efs",
		Claim: fmt.Sprintf("d%d", n), ClaimUID: uid(n), Made: true, Since: time.Unix(int64(n), 0),
	}
	for _, edit := range edits {
		edit(&o)
	}
	return o
}

func claimWith(volume string) corev1.PersistentVolumeClaim {
	return corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "d1", UID: types.UID(uid(1))},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: volume, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}},
	}
}

// made returns the objects of a plan, as they are after it was applied.
func made(t *testing.T, edits ...func(*corev1.PersistentVolume)) ([]corev1.PersistentVolume, corev1.PersistentVolumeClaim) {
	t.Helper()
	r := rebuild.Rebuild{Cluster: newCluster(nil), Choice: choice(), Of: lost}
	items := r.Plan(map[string][]requests.Owned{fs1: {owned(1)}})
	if len(items) != 1 || items[0].NewVolume == nil || items[0].NewClaim == nil {
		t.Fatalf("%+v", items)
	}
	volume := *items[0].NewVolume
	for _, edit := range edits {
		edit(&volume)
	}
	return []corev1.PersistentVolume{volume}, *items[0].NewClaim
}

// TestWhatIsRebuilt of one entry of the lost cluster.
func TestWhatIsRebuilt(t *testing.T) {
	volume, claim := made(t)
	released, _ := made(t, func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID, v.Status.Phase = "gone", corev1.VolumeReleased })
	available, _ := made(t, func(v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil })
	elsewhere, _ := made(t, func(v *corev1.PersistentVolume) { v.Spec.NFS.Path = "/else" })
	taken := owned(1, func(o *requests.Owned) { o.Cluster, o.TakenFrom, o.NamespaceUID = own, lost, "team-uid" })
	tests := map[string]struct {
		owned   requests.Owned
		cluster rebuild.Cluster
		edit    func(*rebuild.Rebuild)
		state   rebuild.State
		note    string
		does    string // adopt, volume, claim
	}{
		"nothing is there":          {owned(1), newCluster(nil), nil, rebuild.Planned, "", "adopt volume claim"},
		"the ledger is taken over":  {taken, newCluster(nil), nil, rebuild.Planned, "", "adopt volume claim"},
		"the volume is there":       {taken, newCluster(volume), nil, rebuild.Planned, "", "claim"},
		"everything is there":       {taken, newCluster(volume, claim), nil, rebuild.Exists, "", ""},
		"only the owner is wrong":   {owned(1), newCluster(volume, claim), nil, rebuild.Planned, "", "adopt"},
		"the claim names it":        {owned(1), newCluster(nil, claimWith(volumeOf(1))), nil, rebuild.Planned, "", "adopt volume"},
		"the claim waits for it":    {owned(1), newCluster(nil, claimWith("")), nil, rebuild.Left, "claim team/d1 waits for it", ""},
		"the claim has another one": {owned(1), newCluster(nil, claimWith("other")), nil, rebuild.Refused, "claim team/d1 exists, with volume other", ""},
		"another claim waits": {owned(1), newCluster(nil, func() corev1.PersistentVolumeClaim {
			c := claimWith("")
			c.UID = "another"
			return c
		}()), nil, rebuild.Refused, "claim team/d1 exists, without a volume", ""},
		"the volume's claim was deleted":  {owned(1), newCluster(released), nil, rebuild.Refused, "its claim was deleted", ""},
		"the volume is available":         {owned(1), newCluster(available), nil, rebuild.Refused, "is not reserved for the claim", ""},
		"the volume is elsewhere":         {owned(1), newCluster(elsewhere), nil, rebuild.Refused, "has another directory", ""},
		"a volume of another provisioner": {owned(1), newCluster([]corev1.PersistentVolume{{ObjectMeta: metav1.ObjectMeta{Name: volumeOf(1)}}}), nil, rebuild.Refused, "has another directory", ""},
		"the namespace is missing": {
			owned(1, func(o *requests.Owned) { o.Namespace = "none" }), newCluster(nil), nil, rebuild.Left, "namespace none does not exist: create it", "",
		},
		"the namespace is missing, and the volume there": {
			taken, func() rebuild.Cluster {
				c := newCluster(volume)
				delete(c.Namespaces, "team")
				return c
			}(), nil, rebuild.Left, "namespace team does not exist: create it", "",
		},
		"the namespace is another": {
			owned(1, func(o *requests.Owned) { o.Cluster = own }), newCluster(nil), func(r *rebuild.Rebuild) { r.Of = own },
			rebuild.Planned, "namespace team was deleted and made again", "adopt volume claim",
		},
		"the namespace is made later": {
			owned(1, func(o *requests.Owned) { o.Cluster, o.TakenFrom = own, lost }), newCluster(volume), nil, rebuild.Planned, "", "adopt claim",
		},
		"its cleanup has begun": {owned(1, func(o *requests.Owned) { o.Leaving = true }), newCluster(nil), nil, rebuild.Left, "its cleanup has begun", ""},
		"it is retained":        {owned(1, func(o *requests.Owned) { o.Retained = true }), newCluster(nil), nil, rebuild.Left, "--retained makes one", ""},
		"it is retained, and wanted": {
			owned(1, func(o *requests.Owned) { o.Retained = true }), newCluster(nil), func(r *rebuild.Rebuild) { r.Retained = true }, rebuild.Planned, "", "adopt volume claim",
		},
		"its class is not there":       {owned(1, func(o *requests.Owned) { o.Class = "none" }), newCluster(nil), nil, rebuild.Refused, `there is no storage class "none"`, ""},
		"its class is not known":       {owned(1, func(o *requests.Owned) { o.Class = "" }), newCluster(nil), nil, rebuild.Refused, "name one with --class", ""},
		"its class is another's":       {owned(1, func(o *requests.Owned) { o.Class = "other" }), newCluster(nil), nil, rebuild.Refused, "is of provisioner", ""},
		"its class cannot be read":     {owned(1, func(o *requests.Owned) { o.Class = "wrong" }), newCluster(nil), nil, rebuild.Refused, `parameter "what"`, ""},
		"another class is given":       {owned(1, func(o *requests.Owned) { o.Class = "none" }), newCluster(nil), func(r *rebuild.Rebuild) { r.Class = "zonal" }, rebuild.Planned, "", "adopt volume claim"},
		"its claim's name is none":     {owned(1, func(o *requests.Owned) { o.Claim = "\x1b[2J" }), newCluster(nil), nil, rebuild.Refused, "is no name of a claim", ""},
		"its claim's uid is none":      {owned(1, func(o *requests.Owned) { o.ClaimUID = "u1" }), newCluster(nil), nil, rebuild.Refused, "which is none of an apiserver", ""},
		"its path is of another cloud": {owned(1, func(o *requests.Owned) { o.Path = "/a/./b" }), newCluster(nil), nil, rebuild.Refused, "has the component .", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := rebuild.Rebuild{Cluster: tt.cluster, Choice: choice(), Of: lost}
			if tt.edit != nil {
				tt.edit(&r)
			}
			items := r.Plan(map[string][]requests.Owned{fs1: {tt.owned}})
			if len(items) != 1 || items[0].State != tt.state || !strings.Contains(items[0].Note, tt.note) || tt.note == "" && items[0].Note != "" {
				t.Fatalf("%+v, want %s %q", items, tt.state, tt.note)
			}
			if got := does(items[0]); got != tt.does {
				t.Errorf("does %q, want %q", got, tt.does)
			}
		})
	}
}

// does lists what an item changes.
func does(item rebuild.Item) string {
	var parts []string
	if item.Adoption != nil {
		parts = append(parts, "adopt")
	}
	if item.NewVolume != nil {
		parts = append(parts, "volume")
	}
	if item.NewClaim != nil {
		parts = append(parts, "claim")
	}
	return strings.Join(parts, " ")
}

// TestTheOwnerIsTakenOverAsItWas with the right to remove, and for the namespace of this cluster.
func TestTheOwnerIsTakenOverAsItWas(t *testing.T) {
	r := rebuild.Rebuild{Cluster: newCluster(nil), Choice: choice(), Of: lost, Retained: true}
	items := r.Plan(map[string][]requests.Owned{fs2: {
		owned(1, func(o *requests.Owned) { o.GID, o.Class = 2001, "zonal" }),
		owned(2, func(o *requests.Owned) { o.Made = false }),
		owned(3, func(o *requests.Owned) { o.Retained = true }),
	}})
	want := requests.Volume{
		Name: volumeOf(1), Path: "/team/d1", Namespace: "team", NamespaceUID: "team-uid", Class: "zonal", Claim: "d1", ClaimUID: uid(1), Made: true, GID: 2001,
	}
	if len(items) != 3 || *items[0].Adoption != want || items[1].Adoption.Made || items[2].Adoption.Made {
		t.Fatalf("%+v, want %+v", items, want)
	}
	volume := items[0].NewVolume
	if volume.Annotations[wellknown.AnnotationGID] != "2001" || volume.Spec.NodeAffinity == nil || volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
		t.Errorf("%+v", volume)
	}
	if paths := rebuild.Paths(items); len(paths) != 1 || len(paths[fs2]) != 3 {
		t.Errorf("%v", paths)
	}
}

// TestClaimForReadersStaysReadOnly: the volume of a claim that exists has its access modes, not those of the flag.
func TestClaimForReadersStaysReadOnly(t *testing.T) {
	readers := claimWith(volumeOf(1))
	readers.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
	r := rebuild.Rebuild{Cluster: newCluster(nil, readers), Choice: choice(), Of: lost}
	items := r.Plan(map[string][]requests.Owned{fs1: {owned(1)}})
	if len(items) != 1 || items[0].NewVolume == nil {
		t.Fatalf("%+v", items)
	}
	if spec := items[0].NewVolume.Spec; !spec.NFS.ReadOnly || !slices.Contains(spec.MountOptions, "ro") || !slices.Equal(spec.AccessModes, readers.Spec.AccessModes) {
		t.Errorf("%+v", spec)
	}
}

// TestOneVolumeForEachClaim: the latest, and owners before what was retained.
func TestOneVolumeForEachClaim(t *testing.T) {
	named := func(o *requests.Owned) { o.Claim = "same" }
	r := rebuild.Rebuild{Cluster: newCluster(nil), Choice: choice(), Of: lost, Retained: true}
	items := r.Plan(map[string][]requests.Owned{
		fs1: {owned(1, named), owned(3, named, func(o *requests.Owned) { o.Retained = true })},
		fs2: {owned(2, named)},
	})
	states := map[string]rebuild.State{}
	for _, item := range items {
		states[item.Volume] = item.State
	}
	want := map[string]rebuild.State{volumeOf(1): rebuild.Left, volumeOf(2): rebuild.Planned, volumeOf(3): rebuild.Left}
	if !maps.Equal(states, want) {
		t.Errorf("%v, want %v", states, want)
	}
}

// TestOnlyWhatWasAskedForIsRebuilt of the cluster and the namespace.
func TestOnlyWhatWasAskedForIsRebuilt(t *testing.T) {
	ledgers := map[string][]requests.Owned{fs1: {
		owned(1), owned(2, func(o *requests.Owned) { o.Namespace = "team-b" }),
		owned(3, func(o *requests.Owned) { o.Cluster = own }),
		owned(4, func(o *requests.Owned) { o.Cluster = "c3" }),
		{Path: "/team/x", Volume: "damaged", Unreadable: true},
	}}
	r := rebuild.Rebuild{Cluster: newCluster(nil), Choice: choice(), Of: lost, Namespace: "team"}
	if items := r.Plan(ledgers); len(items) != 1 || items[0].Claim != "d1" {
		t.Errorf("%+v", items)
	}
	if others := r.Others(ledgers); !maps.Equal(others, map[string]int{"c3": 1, "": 1}) {
		t.Errorf("%v", others)
	}
}

func TestDirectoriesThatAreMissingAreRefused(t *testing.T) {
	r := rebuild.Rebuild{Cluster: newCluster(nil), Choice: choice(), Of: lost}
	items := r.Plan(map[string][]requests.Owned{fs1: {owned(1), owned(2), owned(3)}})
	rebuild.RefuseMissing(items, map[string][]requests.Directory{fs1: {{Path: "/team/d1"}, {Path: "/team/d2", Problem: "there is no such directory"}}})
	if items[0].State != rebuild.Planned || items[1].Note != "there is no such directory" || items[2].Note != "its directory was not listed" {
		t.Errorf("%+v", items)
	}
	if rebuild.Count(items, rebuild.Refused) != 2 || does(items[1]) != "" {
		t.Errorf("%+v", items)
	}
}
