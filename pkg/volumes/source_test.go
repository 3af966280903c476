package volumes_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

const sourceUID = "99999999-89ab-cdef-0123-456789abcdef"

// copyOf has a claim be a copy of another one.
func copyOf(name string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: name}
	}
}

// newSource is claim old, which is bound to a volume of ours on fs-1.
func newSource(t *testing.T) volumes.Source {
	t.Helper()
	claim := newClaim(func(c *corev1.PersistentVolumeClaim) { c.Name, c.UID = "old", sourceUID })
	class := parseClass(t, newClass(nil))
	operation := begin(t, parseClaim(t, claim, class), class, volumes.Choice{FileSystemID: "fs-1"})
	volume, err := volumes.FromOperation(operation, 20490, 0, provisioner)
	if err != nil {
		t.Fatal(err)
	}
	claim.Spec.VolumeName, claim.Status.Phase = volume.Name, corev1.ClaimBound
	return volumes.Source{Claim: claim, Volume: volume}
}

func TestClaimFromSource(t *testing.T) {
	deleted := metav1.Now()
	tests := map[string]struct {
		edit          func(*volumes.Source)
		claim         func(*corev1.PersistentVolumeClaim)
		wait, refusal string
	}{
		"bound": {},
		"larger": {claim: func(c *corev1.PersistentVolumeClaim) {
			c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("9Gi")
		}},
		"of another class": {edit: func(s *volumes.Source) {
			*s.Claim.Spec.StorageClassName, s.Volume.Spec.StorageClassName = "fast", "fast"
		}},
		"missing":                  {edit: func(s *volumes.Source) { *s = volumes.Source{} }, wait: `claim "old", which is to be copied, does not exist`},
		"not bound":                {edit: func(s *volumes.Source) { s.Claim.Status.Phase = corev1.ClaimPending }, wait: `claim "old", which is to be copied, is not bound`},
		"of a volume that is gone": {edit: func(s *volumes.Source) { s.Volume = nil }, wait: "volume pvc-" + sourceUID + ` of claim "old", which is to be copied, does not exist`},
		"of the original system": {edit: func(s *volumes.Source) {
			s.Volume.Name = "efs-1"
			delete(s.Volume.Annotations, wellknown.AnnotationPath)
		}, wait: `volume efs-1 of claim "old", which is to be copied, is not adopted`},
		"being deleted":             {edit: func(s *volumes.Source) { s.Claim.DeletionTimestamp = &deleted }, refusal: `claim "old", which is to be copied, is being deleted`},
		"of another claim's volume": {edit: func(s *volumes.Source) { s.Volume.Spec.ClaimRef.UID = claimUID }, refusal: `claim "old" cannot be copied: its volume pvc-` + sourceUID + " is bound to another claim"},
		"of another provisioner":    {edit: func(s *volumes.Source) { s.Volume.Annotations[wellknown.AnnotationProvisionedBy] = "ebs.csi.aws.com" }, refusal: `claim "old" cannot be copied: its volume pvc-` + sourceUID + " was not made by this provisioner"},
		"of a root volume":          {edit: func(s *volumes.Source) { s.Volume.Spec.StorageClassName = wellknown.RootStorageClass }, refusal: `claim "old" cannot be copied: its volume pvc-` + sourceUID + " was not made by this provisioner"},
		"of a SharedVolume":         {edit: func(s *volumes.Source) { s.Volume.Annotations[wellknown.AnnotationSharedVolume] = "team/all" }, refusal: `claim "old" cannot be copied: it is a SharedVolume's, which can be a whole file system: copy the data with a pod`},
		"of an edited volume":       {edit: func(s *volumes.Source) { s.Volume.Spec.NFS.Server = "10.0.0.1" }, refusal: `claim "old" cannot be copied: its volume pvc-` + sourceUID + ` is not what it says it is: its server is "10.0.0.1", not 127.0.0.1`},
		"larger than the copy": {claim: func(c *corev1.PersistentVolumeClaim) {
			c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("4Gi")
		}, refusal: `claim "old" cannot be copied: it requests 5Gi, and this claim only 4Gi: request at least as much`},
		"in the same directory": {edit: func(s *volumes.Source) {
			const path = "/team/data-" + claimUID
			s.Volume.Spec.NFS.Path, s.Volume.Annotations[wellknown.AnnotationPath] = path, path
		}, refusal: `claim "old" cannot be copied: this claim has the same directory, "/team/data-` + claimUID + `": choose another volume_name`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			source, object := newSource(t), newClaim(copyOf("old"))
			if tt.edit != nil {
				tt.edit(&source)
			}
			if tt.claim != nil {
				tt.claim(object)
			}
			claim := parseClaim(t, object, parseClass(t, newClass(nil)))
			wait, err := claim.From(source, provisioner)
			wantRefusal(t, err, tt.refusal)
			if wait != tt.wait {
				t.Errorf("waits for %q, want %q", wait, tt.wait)
			}
			if copies := claim.Copies != (operations.Source{}); copies != (tt.wait == "" && tt.refusal == "") {
				t.Errorf("it copies %+v", claim.Copies)
			}
		})
	}
}

// The directory of a copy has mode, owner and group of its source, whatever the class says.
func TestBeginClone(t *testing.T) {
	class := parseClass(t, newClass(map[string]string{"directory_perms": "0700", "gidAllocate": "true"}))
	claim := parseClaim(t, newClaim(copyOf("old")), class)
	if _, err := claim.From(newSource(t), provisioner); err != nil {
		t.Fatal(err)
	}
	o := begin(t, claim, class, volumes.Choice{FileSystemID: "fs-1"})
	want := operations.Source{SourcePath: "/team/old-" + sourceUID, SourceVolume: "pvc-" + sourceUID, SourceClaim: "old", SourceClaimUID: sourceUID}
	if o.Kind != operations.Clone || o.Source != want || o.Directory != (operations.Directory{}) || o.Rules != (operations.Rules{}) || o.Check() != nil {
		t.Errorf("got %+v (%v)", o, o.Check())
	}
}

func TestChooseTheFileSystemOfTheSource(t *testing.T) {
	candidates := []volumes.Candidate{{ID: "fs-1", Port: 1}, {ID: "fs-2", Port: 2, HoldsPath: true}}
	tests := map[string]struct {
		parameters map[string]string
		label      string
		source     string
		want       volumes.Choice
		refusal    string
	}{
		"any":          {source: "fs-1", want: volumes.Choice{FileSystemID: "fs-1"}},
		"the same":     {source: "fs-1", label: "fs-1", want: volumes.Choice{FileSystemID: "fs-1"}},
		"another":      {source: "fs-1", label: "fs-2", refusal: `claim "old" is on file system fs-1, where a copy of it must be, and this claim or storage class "efs" asks for another one`},
		"of the class": {source: "fs-1", parameters: map[string]string{"file_system_ids": "fs-2"}, refusal: `claim "old" is on file system fs-1, where a copy of it must be, and this claim or storage class "efs" asks for another one`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			class := parseClass(t, newClass(tt.parameters))
			claim := parseClaim(t, newClaim(copyOf("old")), class)
			claim.FileSystemID, claim.SourceFileSystemID = tt.label, tt.source
			got, err := volumes.Choose(claim, class, "", candidates, nil)
			wantRefusal(t, err, tt.refusal)
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
	class := parseClass(t, newClass(nil))
	claim := parseClaim(t, newClaim(copyOf("old")), class)
	claim.SourceFileSystemID = "fs-3"
	if got, err := volumes.Choose(claim, class, "", candidates, nil); err != nil || !got.Unknown || got.Wait == "" {
		t.Errorf("of a file system that is not listed: %+v (%v)", got, err)
	}
}
