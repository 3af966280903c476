//go:build integration

package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/plugin/rebuild"
)

// staticPair makes a volume of another provisioner, and the claim that is bound to it.
func (f *fixture) staticPair(volumeName, claimName string, source corev1.PersistentVolumeSource) pair {
	f.Helper()
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	class := "another-provisioner"
	volume, err := f.volumes().Create(f.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: volumeName},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: oneGibibyte(), AccessModes: modes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			StorageClassName: class, PersistentVolumeSource: source,
			ClaimRef: &corev1.ObjectReference{Namespace: f.Team, Name: claimName},
		},
	}, metav1.CreateOptions{})
	f.check(err)
	claim, err := f.claims(f.Team).Create(f.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: claimName},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, StorageClassName: &class, VolumeName: volumeName,
			Resources: corev1.VolumeResourceRequirements{Requests: oneGibibyte()},
		},
	}, metav1.CreateOptions{})
	f.check(err)
	f.waitForPhase(volume.Name, corev1.VolumeBound)
	return pair{volume: volume, claim: claim}
}

// webSet is a StatefulSet as efs-provisioner's README has it, but without pods: no controller makes any here.
const webSet = `kubectl -n $NS apply -f - <<'EOF'
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web}
spec:
  serviceName: web
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: busybox, volumeMounts: [{name: efs, mountPath: /data}]}]
  volumeClaimTemplates:
  - metadata: {name: efs}
    spec: {accessModes: [ReadWriteMany], storageClassName: another-provisioner, resources: {requests: {storage: 1Mi}}}
EOF
`

// TestStatefulSetMovesFromEFSProvisioner runs what docs/tasks/migrate-a-statefulset.md says, and plays the plugin.
func TestStatefulSetMovesFromEFSProvisioner(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	f.provision("first", f.class) // the file system has its root claim
	path := func(claim string) string {
		return "/persistentvolumes/" + claim + "-pvc-11111111-2222-4333-8444-555555555555"
	}
	old := map[string]pair{}
	for _, claim := range []string{"efs-web-0", "efs-web-1", "efs-other-0"} {
		f.makeDirectory(path(claim))
		server := f.fileSystem + ".efs.us-east-1.amazonaws.com"
		old[claim] = f.staticPair(f.Named(claim), claim, corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: server, Path: path(claim)}})
	}
	earlier := f.Named("earlier") // the volume of a claim of the same name that was deleted
	gone := old["efs-web-0"].volume.DeepCopy()
	gone.ObjectMeta = metav1.ObjectMeta{Name: earlier}
	gone.Spec.ClaimRef.UID, gone.Spec.NFS.Path = "gone", "/persistentvolumes/earlier"
	_, err := f.volumes().Create(t.Context(), gone, metav1.CreateOptions{})
	f.check(err)
	f.waitForPhase(earlier, corev1.VolumeReleased)

	folder := t.TempDir()
	const names = "SET=web TEMPLATE=efs CLASS=unused\n"
	f.shell(folder, webSet)
	for _, commands := range recipes(t, "migrate-a-statefulset") {
		if strings.Contains(commands, "kubectl efs-stunnel import") {
			f.importList(filepath.Join(folder, "import.txt"))
			continue
		}
		f.Logf("%s", f.shell(folder, names+commands))
	}
	for _, claim := range []string{"efs-web-0", "efs-web-1"} {
		now, volume := f.WaitForBound(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: f.Team, Name: claim}})
		if volume.Spec.NFS.Server != "127.0.0.1" || volume.Spec.NFS.Path != path(claim) || now.UID == old[claim].claim.UID {
			t.Errorf("claim %s has %+v, want %s through the tunnel", claim, volume.Spec.NFS, path(claim))
		}
		f.expectFile(path(claim))
		f.waitForVolumeDeleted(old[claim].volume.Name)
	}
	f.waitForPhase(old["efs-other-0"].volume.Name, corev1.VolumeBound)
	f.waitForPhase(earlier, corev1.VolumeReleased)
	f.shell(folder, webSet) // it can be applied again
}

// importList plays the plugin's command with --list and --apply.
func (f *fixture) importList(file string) {
	f.Helper()
	text, err := os.ReadFile(file)
	f.check(err)
	wanted, err := rebuild.ParseList(string(text), "")
	f.check(err)
	if len(wanted) != 2 {
		f.Fatalf("the list has\n%s", text)
	}
	f.expectStates("imported", f.imported(corev1.PersistentVolumeReclaimRetain, true, wanted...), rebuild.Done, rebuild.Done)
}

// TestSharedVolumesMoveFromTheOperatorOneByOne holds docs/tasks/migrate-from-the-efs-operator.md: a SharedVolume of
// another name serves beside the operator's claim, and one of the same name waits until that is gone.
func TestSharedVolumesMoveFromTheOperatorOneByOne(t *testing.T) {
	f := newInstalledFixture(t)
	f.startManager(nil)
	point := f.createAccessPoint(1)
	operators := f.staticPair("pv-"+f.Team+"-reports", "pvc-reports", corev1.PersistentVolumeSource{
		CSI: &corev1.CSIPersistentVolumeSource{Driver: "efs.csi.aws.com", VolumeHandle: f.fileSystem + "::" + point},
	})
	beside := f.create(f.Team, "reports-tls", v1alpha1.SharedVolumeSpec{AccessPointID: point})
	port := portOption(f.waitForReady(beside).volume)
	if port == "" || port == fmt.Sprintf("port=%d", f.portRange().Base) {
		t.Errorf("the volume has %q, want a port of the access point", port)
	}
	same := f.create(f.Team, "reports", v1alpha1.SharedVolumeSpec{AccessPointID: point})
	f.waitForStatus(same, v1alpha1.Failed, "")
	kept, err := f.volumes().Get(t.Context(), operators.volume.Name, metav1.GetOptions{})
	f.check(err)
	claim, err := f.claims(f.Team).Get(t.Context(), operators.claim.Name, metav1.GetOptions{})
	f.check(err)
	if kept.Spec.CSI == nil || kept.Status.Phase != corev1.VolumeBound || claim.UID != operators.claim.UID {
		t.Errorf("the operator's objects were changed: %+v, %+v", kept.Spec, claim)
	}

	f.deleteClaims(claim)
	f.waitForPhase(kept.Name, corev1.VolumeReleased)
	f.deleteVolume(kept.Name)
	if now := portOption(f.waitForReady(same).volume); now != port {
		t.Errorf("the volumes of one access point have %s and %s", port, now)
	}
	for _, object := range []*v1alpha1.SharedVolume{same, beside} {
		f.delete(object)
		f.waitForDeleted(object)
	}
}
