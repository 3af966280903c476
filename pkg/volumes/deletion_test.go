package volumes_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

func phase(phase corev1.PersistentVolumePhase) func(*corev1.PersistentVolume) {
	return func(o *corev1.PersistentVolume) { o.Status.Phase = phase }
}

func deleted(o *corev1.PersistentVolume) {
	now := metav1.Now()
	o.DeletionTimestamp = &now
}

func retained(o *corev1.PersistentVolume) { o.Spec.PersistentVolumeReclaimPolicy = "Retain" }

func named(volume string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = volume }
}

func TestNeedsCleanup(t *testing.T) {
	own, namesIt, elsewhere := newClaim(), newClaim(named("pvc-"+claimUID)), newClaim(named("retained"))
	madeForAnother := func(o *corev1.PersistentVolume) { o.Name = "pvc-76543210-89ab-cdef-0123-456789abcdef" }
	successor := newClaim(func(c *corev1.PersistentVolumeClaim) { c.UID = "another" })
	type edits = []func(*corev1.PersistentVolume)
	tests := map[string]struct {
		volume edits
		claim  *corev1.PersistentVolumeClaim
		want   bool
	}{
		"released, its claim gone":                      {edits{phase("Released")}, nil, true},
		"released and deleted":                          {edits{phase("Released"), deleted}, nil, true},
		"released, a new claim of that name":            {edits{phase("Released")}, successor, true},
		"released, they say, but its claim is there":    {edits{phase("Released")}, own, false},
		"released, and its claim has another":           {edits{phase("Released")}, elsewhere, true},
		"released and deleted, its claim has another":   {edits{phase("Released"), deleted}, elsewhere, true},
		"released, though its claim has it":             {edits{phase("Released")}, namesIt, false},
		"bound, they say, but its claim has another":    {edits{phase("Bound")}, elsewhere, false},
		"never bound, and its claim has another":        {edits{phase("Available")}, elsewhere, false},
		"to be retained, and its claim has another":     {edits{phase("Released"), retained}, elsewhere, false},
		"adopted, and its claim has another":            {edits{phase("Released"), original, volumes.Adopt}, elsewhere, false},
		"another's first, and its claim has another":    {edits{phase("Released"), madeForAnother}, elsewhere, false},
		"released, to be retained":                      {edits{phase("Released"), retained}, nil, false},
		"bound":                                         {edits{phase("Bound")}, nil, false},
		"bound and deleted":                             {edits{phase("Bound"), deleted}, nil, false},
		"failed":                                        {edits{phase("Failed")}, nil, false},
		"never bound":                                   {edits{phase("Available")}, own, false},
		"never bound and deleted":                       {edits{phase("Available"), deleted}, own, true},
		"new and deleted":                               {edits{phase("Pending"), deleted}, own, true},
		"never bound and deleted, its claim gone":       {edits{phase("Available"), deleted}, nil, true},
		"never bound and deleted, but its claim has it": {edits{phase("Available"), deleted}, namesIt, false},
		"never bound and deleted, to be retained":       {edits{phase("Available"), deleted, retained}, own, false},
		"without a claim":                               {edits{phase("Released"), func(o *corev1.PersistentVolume) { o.Spec.ClaimRef = nil }}, nil, false},
		"with a claim of no uid":                        {edits{phase("Released"), func(o *corev1.PersistentVolume) { o.Spec.ClaimRef.UID = "" }}, nil, false},
		"forged":                                        {edits{phase("Released"), func(o *corev1.PersistentVolume) { o.Spec.NFS.Path = "/other" }}, nil, false},
		"of another provisioner":                        {edits{phase("Released"), func(o *corev1.PersistentVolume) { o.Annotations = nil }}, nil, false},
		"the original's, and not adopted":               {edits{phase("Released"), original}, nil, false},
		"a whole file system":                           {edits{phase("Released"), func(o *corev1.PersistentVolume) { o.Spec.StorageClassName = "efs-stunnel-system" }}, nil, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := volumes.Read(newVolume(t, tt.volume...), provisioner).NeedsCleanup(tt.claim); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestEditFinalizer(t *testing.T) {
	none := func(o *corev1.PersistentVolume) { o.Finalizers = []string{"kubernetes.io/pv-protection"} }
	type edits = []func(*corev1.PersistentVolume)
	tests := map[string]struct {
		volume      edits
		add, remove bool
	}{
		"to delete, with it":                            {nil, false, false},
		"to delete, without it":                         {edits{none}, true, false},
		"to delete and released, without it":            {edits{none, phase("Released")}, true, false},
		"to delete, without it, too late":               {edits{none, deleted}, false, false},
		"to retain, with it":                            {edits{retained}, false, true},
		"to retain and being deleted, with it":          {edits{retained, deleted}, false, true},
		"to retain, without it":                         {edits{retained, none}, false, false},
		"without a claimRef and being deleted, with it": {edits{deleted, func(o *corev1.PersistentVolume) { o.Spec.ClaimRef = nil }}, false, true},
		"reserved and being deleted, with it":           {edits{deleted, func(o *corev1.PersistentVolume) { o.Spec.ClaimRef.UID = "" }}, false, true},
		"without a claimRef, with it":                   {edits{func(o *corev1.PersistentVolume) { o.Spec.ClaimRef = nil }}, false, false},
		"to recycle, with it":                           {edits{func(o *corev1.PersistentVolume) { o.Spec.PersistentVolumeReclaimPolicy = "Recycle" }}, false, true},
		"the original's, not adopted yet":               {edits{original}, false, false},
		"forged, to delete, without it":                 {edits{none, func(o *corev1.PersistentVolume) { o.Spec.NFS.Server = "x" }}, false, false},
		"forged, to retain, with it":                    {edits{retained, func(o *corev1.PersistentVolume) { o.Spec.NFS.Server = "x" }}, false, true},
		"another's with the same finalizer":             {edits{retained, func(o *corev1.PersistentVolume) { o.Annotations = nil }}, false, false},
		"a root volume with a finalizer, so be":         {edits{retained, func(o *corev1.PersistentVolume) { o.Spec.StorageClassName = "efs-stunnel-system" }}, false, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			add, remove := volumes.Read(newVolume(t, tt.volume...), provisioner).EditFinalizer()
			if add != tt.add || remove != tt.remove {
				t.Errorf("got add %v, remove %v; want %v, %v", add, remove, tt.add, tt.remove)
			}
		})
	}
}

func TestNeedsAdoption(t *testing.T) {
	bound := func(edits ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
		claim := newClaim(named("efs-team-x"))
		for _, edit := range edits {
			edit(claim)
		}
		return claim
	}
	now := metav1.Now()
	type edits = []func(*corev1.PersistentVolume)
	tests := map[string]struct {
		volume edits
		claim  *corev1.PersistentVolumeClaim
		want   bool
	}{
		"bound to its claim":              {edits{original}, bound(), true},
		"adopted already":                 {edits{original, volumes.Adopt}, bound(), false},
		"made by us":                      {nil, newClaim(named("pvc-" + claimUID)), false},
		"never seen bound":                {edits{original, phase("Released")}, nil, false},
		"not bound, as the volume has it": {edits{original, phase("Available")}, bound(), false},
		"bound, but the claim is gone":    {edits{original}, nil, false},
		"bound to a claim of that name":   {edits{original}, bound(func(c *corev1.PersistentVolumeClaim) { c.UID = "another" }), false},
		"the claim has another volume":    {edits{original}, newClaim(named("other")), false},
		"the claim is being deleted":      {edits{original}, bound(func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &now }), false},
		"the volume is being deleted":     {edits{original, deleted}, bound(), false},
		"forged: the whole file system":   {edits{original, func(o *corev1.PersistentVolume) { o.Spec.NFS.Path = "/" }}, bound(), false},
		"forged: a claim without any uid": {edits{original, func(o *corev1.PersistentVolume) { o.Spec.ClaimRef.UID = "" }}, bound(func(c *corev1.PersistentVolumeClaim) { c.UID = "" }), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := volumes.Read(newVolume(t, tt.volume...), provisioner).NeedsAdoption(tt.claim); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestAdoption(t *testing.T) {
	object := newVolume(t, original)
	want := operations.Operation{
		Kind:  operations.Setup,
		Owner: operations.Owner{Volume: "efs-team-x", Cluster: cluster, Namespace: "team", Claim: "data", ClaimUID: claimUID},
		Path:  "/team/x", Adopt: true, Made: true,
	}
	operation := volumes.Adoption(volumes.Read(object, provisioner), cluster)
	if diff := cmp.Diff(want, operation); diff != "" {
		t.Errorf("operation mismatch (-want +got):\n%s", diff)
	}
	volumes.Adopt(object)
	adopted := volumes.Read(object, provisioner)
	if adopted.Kind != volumes.Provisioned || adopted.Problem != "" || object.Labels[wellknown.LabelFileSystemID] != "fs-1" {
		t.Errorf("once adopted it is %+v with labels %v", adopted, object.Labels)
	}
	volumes.Adopt(object)
	if len(object.Finalizers) != 1 {
		t.Errorf("adopted twice, it has the finalizers %q", object.Finalizers)
	}
	if add, remove := volumes.Read(object, provisioner).EditFinalizer(); add || remove {
		t.Errorf("its finalizers are %q", object.Finalizers)
	}
	if cleanup := volumes.Cleanup(adopted, cluster); cleanup.Owner != operation.Owner {
		t.Errorf("the ledger has %+v, and the cleanup is of %+v", operation.Owner, cleanup.Owner)
	}
	object.Spec.ClaimRef = nil
	if freed := volumes.Read(object, provisioner); freed.ClaimUID != claimUID {
		t.Errorf("without a claim it is of %q", freed.ClaimUID)
	}
}
