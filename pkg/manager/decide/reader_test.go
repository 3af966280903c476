package decide

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// sharing has what a reader's decision is made from.
type sharing struct {
	*fixture
	owner  volumes.Source
	class  *storagev1.StorageClass // the owner's
	object *corev1.PersistentVolume
}

const ownersPath = "/team/reports"

// reads has the claim read claim team/reports, which consents, as both classes do.
func reads(t *testing.T, change ...func(*sharing)) func(*fixture) {
	return func(w *fixture) {
		s := &sharing{fixture: w, class: newClass()}
		share := map[string]string{"share_read_only": "true"}
		w.Class.Parameters, s.class.Name, s.class.Parameters = share, "owners", map[string]string{"share_read_only": "true", "keep_deleted": "72h"}
		w.Claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
		w.Claim.Annotations[wellknown.AnnotationReads] = "team/reports"
		owner := newClaim()
		owner.Namespace, owner.Name, owner.UID = "team", "reports", otherUID
		owner.Annotations[wellknown.AnnotationReaders] = "web, shop"
		s.object = newVolume(t, func(v *corev1.PersistentVolume) {
			v.Name, v.Spec.StorageClassName = volumes.VolumeName(otherUID), "owners"
			v.Spec.ClaimRef.Namespace, v.Spec.ClaimRef.Name, v.Spec.ClaimRef.UID = "team", "reports", otherUID
			v.Spec.NFS.Path, v.Annotations[wellknown.AnnotationPath] = ownersPath, ownersPath
		})
		s.owner = volumes.Source{Claim: owner, Volume: s.object}
		for _, c := range change {
			c(s)
		}
		w.Named = func(namespace, name string) volumes.Source {
			if namespace+"/"+name != "team/reports" {
				return volumes.Source{}
			}
			return s.owner
		}
		w.ClassNamed = func(name string) *storagev1.StorageClass {
			if s.class == nil || name != s.class.Name {
				return nil
			}
			return s.class
		}
	}
}

func TestReaderIsSetUpOnTheOwnersDirectory(t *testing.T) {
	plan := Decide(newState(reads(t)))
	if len(plan.Pending) != 1 {
		t.Fatalf("got %+v", plan)
	}
	got := plan.Pending[0]
	want := operations.Source{SourcePath: ownersPath, SourceVolume: volumes.VolumeName(otherUID), SourceClaim: "reports", SourceClaimUID: string(otherUID)}
	if o := got.Operation; got.FileSystemID != fs1 || !o.Reads || o.Path != ownersPath || o.Source != want || o.Rules != (operations.Rules{}) || o.Check() != nil {
		t.Errorf("got %+v, %v", got, got.Operation.Check())
	}
	volume, err := volumes.FromOperation(got.Operation, 20490, 0, provisioner)
	if err != nil {
		t.Fatal(err)
	}
	spec := volume.Spec
	if !spec.NFS.ReadOnly || !strings.Contains(strings.Join(spec.MountOptions, ","), "ro") || spec.NFS.Path != ownersPath ||
		spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete || volume.Annotations[wellknown.AnnotationKeepDeleted] != "72h" {
		t.Errorf("got %+v", volume)
	}
}

// TestReaderIsRefused where one of the three does not consent. What is missing on the owner's side has one text.
func TestReaderIsRefused(t *testing.T) {
	const stranger = "claim team/reports cannot be read from here: it must be bound to a writable directory of this provisioner, " +
		`name namespace shop in its annotation efs-stunnel.gnuthought.com/readers, and have a class with share_read_only: "true"`
	named := func(text string) func(*sharing) {
		return func(s *sharing) { s.Claim.Annotations[wellknown.AnnotationReads] = text }
	}
	readers := func(text string) func(*sharing) {
		return func(s *sharing) { s.owner.Claim.Annotations[wellknown.AnnotationReaders] = text }
	}
	modes := func(modes ...corev1.PersistentVolumeAccessMode) func(*sharing) {
		return func(s *sharing) { s.Claim.Spec.AccessModes = modes }
	}
	const syntax = "write the namespace and the name of a claim"
	for name, tt := range map[string]struct {
		change func(*sharing)
		want   string
	}{
		"asks for write":                 {modes(corev1.ReadWriteMany), "ReadOnlyMany only"},
		"asks for both":                  {modes(corev1.ReadOnlyMany, corev1.ReadWriteMany), "ReadOnlyMany only"},
		"its class does not share":       {func(s *sharing) { s.Class.Parameters = nil }, `this claim's class must have share_read_only: "true"`},
		"a path":                         {named("../team/reports"), syntax},
		"a path in the name":             {named("team/../../etc"), syntax},
		"a name alone":                   {named("reports"), syntax},
		"nothing":                        {named(""), syntax},
		"its own namespace":              {named("shop/reports"), "label volume_name"},
		"of another claim":               {named("team/other"), "claim team/other cannot be read from here"},
		"the owner names others":         {readers("web"), stranger},
		"the owner names a prefix":       {readers("shopping,sho"), stranger},
		"the owner names all":            {readers("*"), stranger},
		"the owner names nobody":         {readers(""), stranger},
		"the owner's class does not":     {func(s *sharing) { s.class.Parameters = nil }, stranger},
		"the owner's class is gone":      {func(s *sharing) { s.class = nil }, stranger},
		"the owner is not bound":         {func(s *sharing) { s.owner.Volume = nil }, stranger},
		"the owner is missing":           {func(s *sharing) { s.owner = volumes.Source{} }, stranger},
		"the volume is another claim's":  {func(s *sharing) { s.object.Spec.ClaimRef.UID = "x" }, stranger},
		"the volume is another's":        {func(s *sharing) { s.object.Annotations[wellknown.AnnotationProvisionedBy] = "x" }, stranger},
		"the volume is a reader's":       {func(s *sharing) { s.object.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany} }, stranger},
		"the volume has an access point": {func(s *sharing) { s.object.Annotations[wellknown.AnnotationAccessPointID] = "fsap-1" }, stranger},
		"on a file system of its own":    {func(s *sharing) { s.Class.Parameters["default_file_system_id"] = fs2 }, "does not allow"},
		"wants something back, too":      {func(s *sharing) { s.Claim.Annotations[wellknown.AnnotationRestore] = "abc" }, "leave one of them out"},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Decide(newState(reads(t, tt.change)))
			if got := wantOf(t, plan); !strings.Contains(got.refusal, tt.want) || len(plan.Pending) > 0 || !plan.Unsettled {
				t.Errorf("got %q, pending %v; want %q", got.refusal, plan.Pending, tt.want)
			}
		})
	}
}

// TestReaderThatWasBegunIsFinished although the owner has taken its consent back.
func TestReaderThatWasBegunIsFinished(t *testing.T) {
	first := Decide(newState(reads(t))).Pending[0].Operation
	withdrawn := func(s *sharing) { delete(s.owner.Claim.Annotations, wellknown.AnnotationReaders) }
	plan := Decide(newState(reads(t, withdrawn), withAttempts(ended(first, done))))
	if got := wantOf(t, plan); !got.creates || got.refusal != "" {
		t.Errorf("got %+v", got)
	}
}
