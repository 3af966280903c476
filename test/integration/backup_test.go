//go:build integration

package integration_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/test/integration/cluster"
)

// recipes returns the shell commands of a page in docs/tasks, without those that set its variables.
func recipes(t *testing.T, task string) (commands []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/tasks/" + task + ".md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	for {
		before, rest, ok := strings.Cut(text, "```sh\n")
		if !ok {
			return commands
		}
		indent := before[strings.LastIndex(before, "\n")+1:]
		block, after, _ := strings.Cut(rest, "\n"+indent+"```")
		block = strings.ReplaceAll("\n"+block, "\n"+indent, "\n")
		if text = after; !strings.HasPrefix(block, "\nNS=") {
			commands = append(commands, block)
		}
	}
}

// shell runs commands of a page with kubectl, as an administrator, in a folder of their own.
func (f *fixture) shell(folder, commands string) string {
	f.Helper()
	shell := exec.CommandContext(f.Context(), "bash", "-euo", "pipefail", "-c", commands)
	shell.Dir = folder
	shell.Env = append(os.Environ(), "NS="+f.Team, "KUBECONFIG="+f.kubeconfig(folder), "PATH="+os.Getenv(cluster.ProgramsEnv)+":"+os.Getenv("PATH"))
	out, err := shell.CombinedOutput()
	if err != nil {
		f.Fatalf("%s\n%v\n%s", commands, err, out)
	}
	return string(out)
}

func (f *fixture) kubeconfig(folder string) (path string) {
	f.Helper()
	path = filepath.Join(folder, "kubeconfig")
	tls := f.Config.TLSClientConfig
	f.check(clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"test": {
			Server: f.Config.Host, CertificateAuthority: tls.CAFile, CertificateAuthorityData: tls.CAData,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"test": {
			ClientCertificate: tls.CertFile, ClientCertificateData: tls.CertData, ClientKey: tls.KeyFile, ClientKeyData: tls.KeyData, Token: f.Config.BearerToken,
		}},
		Contexts:       map[string]*clientcmdapi.Context{"test": {Cluster: "test", AuthInfo: "test"}},
		CurrentContext: "test",
	}, path))
	return path
}

// otherVolume is one without annotations, and none of ours: the recipes must leave it alone.
func (f *fixture) otherVolume() *corev1.PersistentVolume {
	f.Helper()
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: f.Named("other")},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: oneGibibyte(), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete, StorageClassName: "other",
			ClaimRef:               &corev1.ObjectReference{Namespace: f.Team, Name: "not-ours"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "192.0.2.1", Path: "/"}},
		},
	}
	created, err := f.volumes().Create(f.Context(), volume, metav1.CreateOptions{})
	f.check(err)
	f.Cleanup(func() {
		_ = f.volumes().Delete(context.WithoutCancel(f.Context()), created.Name, metav1.DeleteOptions{})
	})
	return created
}

func (f *fixture) expectOtherVolume(name string) {
	f.Helper()
	other, err := f.volumes().Get(f.Context(), name, metav1.GetOptions{})
	f.check(err)
	if other.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		f.Errorf("the volume of another provisioner was changed: %+v", other)
	}
}

// TestClaimsLeaveForTheCSIDriver runs what docs/tasks/leave-for-the-csi-driver.md says.
func TestClaimsLeaveForTheCSIDriver(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	other := f.otherVolume()
	earlier := f.released("one")
	one, two := f.provision("one", f.class), f.provision("two", f.class)
	f.writeFile(one.path)
	f.writeFile(two.path)
	ours := f.class
	f.useDriverClass()
	three := f.NewClaim("three", f.class)
	volume, point := f.waitForPoint(three)
	f.class = ours
	folder := t.TempDir()
	for _, commands := range append([]string{recipes(t, "velero")[0]}, recipes(t, "leave-for-the-csi-driver")...) {
		f.Logf("%s", f.shell(folder, commands))
	}
	for _, p := range []provisioned{one, two, {claim: three, volume: volume, path: ":" + point.ID}} { // not the root of the file system
		claim, volume := f.WaitForBound(p.claim)
		want := f.fileSystem + ":" + p.path
		if volume.Spec.CSI == nil || volume.Spec.CSI.VolumeHandle != want || claim.UID == p.claim.UID {
			t.Errorf("claim %s has volume %+v, want the handle %s", p.claim.Name, volume.Spec.PersistentVolumeSource, want)
		}
		if volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
			t.Errorf("volume %s has policy %s", volume.Name, volume.Spec.PersistentVolumeReclaimPolicy)
		}
		f.waitForVolumeDeleted(p.volume.Name)
	}
	f.syncAgain("later")
	f.expectFile(one.path)
	f.expectFile(two.path)
	if _, exists := f.EFS.AccessPoint(point.Token); !exists || !f.Exists(f.fileSystem, point.Path) {
		t.Errorf("access point %s or its directory is gone", point.ID)
	}
	f.expectOtherVolume(other.Name)
	f.waitForPhase(earlier.volume.Name, corev1.VolumeReleased)
	f.expectFile(earlier.path)
}

// released returns the retained volume of a claim that was deleted, with a file.
func (f *fixture) released(name string) provisioned {
	f.Helper()
	p := f.provision(name, f.NewClass("retaining", nil, retaining).Name)
	f.writeFile(p.path)
	f.deleteClaims(p.claim)
	f.waitForReleased(p.claim)
	return p
}

// TestRetainedVolumeIsReservedForOneClaim runs what docs/tasks/restore-a-claim.md says.
func TestRetainedVolumeIsReservedForOneClaim(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	p := f.released("reports")
	names := strings.NewReplacer("pvc-01234567-89ab-cdef-0123-456789abcdef", p.volume.Name, `"team"`, strconv.Quote(f.Team))
	f.shell(t.TempDir(), names.Replace(recipes(t, "restore-a-claim")[1]))
	f.waitForPhase(p.volume.Name, corev1.VolumeAvailable)
	volume, err := f.volumes().Get(t.Context(), p.volume.Name, metav1.GetOptions{})
	f.check(err)
	if ref := volume.Spec.ClaimRef; ref == nil || ref.Namespace != f.Team || ref.Name != "reports" || ref.UID != "" {
		t.Fatalf("the volume is reserved for %+v", ref)
	}
	named := func(claim *corev1.PersistentVolumeClaim) { claim.Spec.VolumeName = p.volume.Name }
	another := f.NewClaim("another", p.volume.Spec.StorageClassName, named)
	again := f.provision("reports", p.volume.Spec.StorageClassName, named)
	if again.volume.Name != p.volume.Name || again.claim.UID == p.claim.UID {
		t.Errorf("claim %s is bound to %s, want %s", again.claim.UID, again.volume.Name, p.volume.Name)
	}
	if phase := f.getClaim(another).Status.Phase; phase != corev1.ClaimPending {
		t.Errorf("another claim is %s", phase)
	}
	f.expectFile(p.path)
}

// TestVolumesComeBackAsVeleroRestoresThem: objects that have the policy Retain, without uids and marks of binding.
func TestVolumesComeBackAsVeleroRestoresThem(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	other := f.otherVolume()
	p := f.provision("data", f.class)
	f.writeFile(p.path)
	f.shell(t.TempDir(), recipes(t, "velero")[0])
	f.expectOtherVolume(other.Name)
	claim, volume := f.WaitForBound(p.claim)
	if volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
		t.Fatalf("the policy is %s", volume.Spec.PersistentVolumeReclaimPolicy)
	}
	f.deleteClaims(claim)
	f.waitForClaimDeleted(claim)
	f.deleteVolume(volume.Name)
	f.waitForVolumeDeleted(volume.Name)

	restoredVolume := &corev1.PersistentVolume{ObjectMeta: restored(volume.ObjectMeta), Spec: *volume.Spec.DeepCopy()}
	restoredVolume.Spec.ClaimRef.UID, restoredVolume.Spec.ClaimRef.ResourceVersion = "", ""
	_, err := f.volumes().Create(t.Context(), restoredVolume, metav1.CreateOptions{})
	f.check(err)
	restoredClaim := &corev1.PersistentVolumeClaim{ObjectMeta: restored(claim.ObjectMeta), Spec: *claim.Spec.DeepCopy()}
	_, err = f.claims(f.Team).Create(t.Context(), restoredClaim, metav1.CreateOptions{})
	f.check(err)
	again, bound := f.WaitForBound(restoredClaim)
	if bound.Name != volume.Name || again.UID == claim.UID {
		t.Errorf("claim %s is bound to %s, want %s", again.UID, bound.Name, volume.Name)
	}
	f.expectFile(p.path)

	f.setReclaimPolicy(bound.Name, corev1.PersistentVolumeReclaimDelete)
	f.waitForFinalizer(bound.Name)
	f.deleteClaims(again)
	f.waitForVolumeDeleted(bound.Name)
	f.expectNoTrace(p.path)
}

// restored returns the metadata of an object that Velero creates again.
func restored(meta metav1.ObjectMeta) metav1.ObjectMeta {
	annotations := map[string]string{}
	for key, value := range meta.Annotations {
		if key != "pv.kubernetes.io/bind-completed" && key != "pv.kubernetes.io/bound-by-controller" {
			annotations[key] = value
		}
	}
	return metav1.ObjectMeta{Namespace: meta.Namespace, Name: meta.Name, Labels: meta.Labels, Annotations: annotations}
}

// TestLostFileSystemIsReplacedUnderItsVolumes: its id is pinned to a file system with a copy of its content.
func TestLostFileSystemIsReplacedUnderItsVolumes(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	p := f.provision("data", f.class)
	before, err := f.Table(t.Context())
	f.check(err)
	f.EFS.Remove(f.fileSystem)
	address := netip.MustParseAddr("192.0.2.14")
	pinned := ports.Table{Targets: map[string]ports.Target{f.fileSystem: {
		DNSName: "fs-0fedcba9876543210.efs.us-east-1.amazonaws.com", AddressByZone: map[string]netip.Addr{"us-east-1a": address},
	}}}
	_, err = f.Client.CoreV1().ConfigMaps(f.Namespace).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: wellknown.PinnedConfigMap},
		Data:       map[string]string{wellknown.TargetsKey: string(ports.Encode(pinned))},
	}, metav1.CreateOptions{})
	f.check(err)
	f.Eventually("the table has the new addresses only", func(ctx context.Context) error {
		table, err := f.Table(ctx)
		if err != nil {
			return err
		}
		target := table.Targets[f.fileSystem]
		if len(target.AddressBySubnet) > 0 || len(target.AddressByZone) != 1 || target.AddressByZone["us-east-1a"] != address || target.DNSName == before.Targets[f.fileSystem].DNSName {
			return fmt.Errorf("it has %+v", target)
		}
		if target.Port != before.Targets[f.fileSystem].Port {
			return errors.New("its port has changed")
		}
		return nil
	})
	f.syncAgain("other") // mount Jobs accept the ledger
	if _, volume := f.WaitForBound(p.claim); volume.Name != p.volume.Name {
		t.Errorf("the claim has volume %s", volume.Name)
	}
}
