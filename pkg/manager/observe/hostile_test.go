package observe

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// TestHostileReports: whatever a worker says, the manager publishes and removes only what it has asked for, as
// it has asked for it. The worker's Job has a second batch, which creates the directory of one claim and removes
// that of another; two more claims are not its business.
func TestHostileReports(t *testing.T) {
	setup, cleanup := hostileOperation(operations.Setup, "wanted"), hostileOperation(operations.Cleanup, "released")
	job := hostileJob(t, setup, cleanup)
	var said map[int]mountjobs.Reported
	g := newGatherer(t, job, nil)
	g.Provisioner, g.Cluster = wellknown.DefaultProvisioner, "cluster"
	g.Reported = func(types.UID) map[int]mountjobs.Reported { return said }
	g.Targets = func() targets.Snapshot {
		return targets.Snapshot{Known: true, Listed: true, FileSystems: map[string]volumes.Candidate{"fs-1": {ID: "fs-1", Port: 20490}}}
	}
	fillForHostile(t, g)

	random := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // a test that is to be repeatable
	created, deleted := 0, 0
	for n := range 10_000 {
		message := hostileMessage(random)
		report, err := operations.DecodeReport(message, 2)
		if err != nil {
			continue // the channel refuses it
		}
		said = map[int]mountjobs.Reported{2: {Report: report, At: time.Now()}}
		g.outcomes.jobs = map[types.UID]*observedJob{}
		for _, uid := range []types.UID{"wanted", "released", "bound", "waiting"} {
			_, plan := g.Decide(uid)
			for _, change := range plan.Changes {
				switch change := change.(type) {
				case decide.Warn, decide.Annotate:
				case decide.CreateVolume:
					if created++; uid != "wanted" || !reflect.DeepEqual(change.Operation, setup) || report.Results[0].State != operations.Done {
						t.Fatalf("%d: %s has volume %+v created", n, message, change)
					}
				case decide.DeleteVolume:
					if deleted++; uid != "released" || change.Object.Name != cleanup.Volume || report.Results[1].State != operations.Done {
						t.Fatalf("%d: %s has volume %s deleted", n, message, change.Object.Name)
					}
				default:
					t.Fatalf("%d: %s causes %+v", n, message, change)
				}
			}
			for _, pending := range plan.Pending {
				if o := pending.Operation; o.Kind == operations.Cleanup && (uid != "released" || o.Volume != cleanup.Volume || o.Path != cleanup.Path) {
					t.Fatalf("%d: %s has %+v removed", n, message, o)
				}
			}
		}
	}
	if created == 0 || deleted == 0 {
		t.Errorf("%d volumes were created and %d deleted: the test tries nothing", created, deleted)
	}
}

func hostileOperation(kind operations.Kind, claim string) operations.Operation {
	return operations.Operation{
		Kind: kind, Path: "/team/" + claim,
		Owner: operations.Owner{Volume: volumes.VolumeName(types.UID(claim)), Cluster: "cluster", Namespace: "team", Claim: claim, ClaimUID: claim},
	}
}

func hostileJob(t *testing.T, ops ...operations.Operation) *batchv1.Job {
	t.Helper()
	job, err := mountjobs.Build(mountjobs.Spec{
		Settings: mountjobs.Settings{Namespace: "efs-stunnel", Image: "image"}, FileSystemID: "fs-1", Number: 1,
		Operations: []operations.Operation{hostileOperation(operations.Setup, "bound")},
	})
	if err != nil {
		t.Fatal(err)
	}
	data, err := operations.EncodeBatch(operations.Batch{Number: 2, Began: time.Now(), Operations: ops})
	if err != nil {
		t.Fatal(err)
	}
	job.UID, job.CreationTimestamp = "job", metav1.Now()
	job.Annotations[wellknown.AnnotationBatch(2)] = string(data)
	return job
}

// fillForHostile adds the claims wanted and waiting, which have no volume, the claim bound, and the volume of the
// claim released, which is gone.
func fillForHostile(t *testing.T, g *Gatherer) {
	t.Helper()
	class := "efs"
	add := func(store interface{ Add(any) error }, object any) {
		if err := store.Add(object); err != nil {
			t.Fatal(err)
		}
	}
	add(g.Caches.Classes.GetStore(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: wellknown.DefaultProvisioner})
	for _, name := range []string{"wanted", "waiting", "bound"} {
		claim := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "team", Name: name, UID: types.UID(name), CreationTimestamp: metav1.Now(),
				Annotations: map[string]string{wellknown.AnnotationStorageProvisioner: wellknown.DefaultProvisioner},
			},
			Spec:   corev1.PersistentVolumeClaimSpec{StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
		}
		if name == "bound" {
			claim.Spec.VolumeName, claim.Status.Phase = volumes.VolumeName(claim.UID), corev1.ClaimBound
		}
		add(g.Caches.Claims.GetStore(), claim)
	}
	for name, phase := range map[string]corev1.PersistentVolumePhase{"bound": corev1.VolumeBound, "released": corev1.VolumeReleased} {
		add(g.Caches.Volumes.GetStore(), &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{
				Name: volumes.VolumeName(types.UID(name)), UID: types.UID("volume-" + name), Finalizers: []string{wellknown.FinalizerVolume},
				Annotations: map[string]string{
					wellknown.AnnotationProvisionedBy: wellknown.DefaultProvisioner,
					wellknown.AnnotationFileSystemID:  "fs-1", wellknown.AnnotationPath: "/team/" + name,
				},
			},
			Spec: corev1.PersistentVolumeSpec{
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
				ClaimRef:                      &corev1.ObjectReference{Namespace: "team", Name: name, UID: types.UID(name)},
				PersistentVolumeSource:        corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: wellknown.LoopbackAddress, Path: "/team/" + name}},
			},
			Status: corev1.PersistentVolumeStatus{Phase: phase},
		})
	}
}

// hostileMessage returns a report of two operations in which nearly anything may be wrong.
func hostileMessage(random *rand.Rand) []byte {
	pick := func(values ...string) string { return values[random.IntN(len(values))] }
	var results []string
	for range random.IntN(4) {
		results = append(results, fmt.Sprintf(`{"state":%s,"reason":%s,"gid":%s,"owners":%s}`,
			pick(`"done"`, `"done"`, `"failed"`, `"blocked"`, `"notDone"`, `"removed"`),
			pick(`""`, `""`, `"Stopped"`, `"IOError"`, `"anything"`), pick(`0`, `2000`, `-1`),
			pick(`[]`, `[]`, `[{"volume":"pvc-bound","cluster":"cluster","ns":"team","claim":"bound"}]`, `[{"volume":"../..","cluster":"other"}]`)))
	}
	return fmt.Appendf(nil, `{"operations":[%s],"batch":2,"results":[%s]}`, pick("-1,-2", "-1,-1", "0,-1", "-1,2000", "0,0", "-3", "-1,-2,-3"), strings.Join(results, ","))
}
