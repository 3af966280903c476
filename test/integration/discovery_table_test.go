//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/controller/loops"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// poll starts a manager that polls often, and sees everything.
func (d *drill) poll() *manager {
	d.Helper()
	return startManager(d.World, nil, func(o *loops.Options) { o.PollingInterval, o.SweepDelay = 200*time.Millisecond, time.Second })
}

// awaitPolls waits for more polls to begin and for the first of them to be over.
func (d *drill) awaitPolls(count int) {
	d.Helper()
	before := d.EFS.Calls().List
	d.Eventually("the manager polls", func(context.Context) error {
		if polls := d.EFS.Calls().List - before; polls < count {
			return fmt.Errorf("%d times", polls)
		}
		return nil
	})
}

// awaitTable waits until a table lacks nothing.
func (d *drill) awaitTable(what string, lacks func(ports.Table) string) ports.Table {
	d.Helper()
	var table ports.Table
	d.Eventually("the table has "+what, func(ctx context.Context) (err error) {
		if table, err = d.tableNow(ctx); err != nil {
			return err
		}
		if missing := lacks(table); missing != "" {
			return fmt.Errorf("%s", missing)
		}
		return nil
	})
	return table
}

func (d *drill) tableNow(ctx context.Context) (ports.Table, error) {
	object, err := d.Client.CoreV1().ConfigMaps(d.Namespace).Get(ctx, wellknown.TargetsConfigMap, metav1.GetOptions{})
	if err != nil {
		return ports.Table{}, err
	}
	return ports.Decode([]byte(object.Data[wellknown.TargetsKey]))
}

func (d *drill) awaitPorts(want map[string]int) ports.Table {
	d.Helper()
	return d.awaitTable(fmt.Sprint(want), func(table ports.Table) string { return cmp.Diff(want, portsOf(table)) })
}

func portsOf(table ports.Table) map[string]int {
	assigned := map[string]int{}
	for id, target := range table.Targets {
		assigned[id] = target.Port
	}
	return assigned
}

// configMap has the table.
func (d *drill) configMap() *corev1.ConfigMap {
	d.Helper()
	object, err := d.Client.CoreV1().ConfigMaps(d.Namespace).Get(d.Context(), wellknown.TargetsConfigMap, metav1.GetOptions{})
	d.check(err)
	return object
}

// writeTable makes a ConfigMap say something, whatever it says now.
func (d *drill) writeTable(name, text string) {
	d.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{wellknown.TargetsKey: text}}
	maps := d.Client.CoreV1().ConfigMaps(d.Namespace)
	_, err := maps.Update(d.Context(), object, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = maps.Create(d.Context(), object, metav1.CreateOptions{})
	}
	d.check(err)
}

// TestDiscoveryBeginsWithNothing makes the table, and tells its story there.
func TestDiscoveryBeginsWithNothing(t *testing.T) {
	d := newDrill(t)
	lonely := d.NewFileSystem(func(fs *efs.FileSystem) { fs.MountTargets = nil })
	other := d.NewFileSystem()
	d.poll()
	d.awaitPorts(map[string]int{d.fileSystem: 20490, other: 20491})
	object := d.configMap()
	d.awaitEvent(object, wellknown.EventFileSystemFound, d.fileSystem)
	d.awaitEvent(object, wellknown.EventFileSystemFound, other)
	d.awaitEvent(object, wellknown.EventFileSystemUnusable, lonely)
	d.awaitBound(d.claim("data"), d.claimOn(other, "others"))
	waits := d.claimOn(lonely, "waits")
	d.awaitEvent(waits, wellknown.EventProvisioningFailed, lonely, "mount target")
	version := d.configMap().ResourceVersion
	d.awaitPolls(3)
	if again := d.configMap().ResourceVersion; again != version {
		t.Errorf("the table of an unchanged world was written\n%s", d.Story())
	}
}

// TestDiscoveryTakesOver begins with what the original system has left: table and volumes.
func TestDiscoveryTakesOver(t *testing.T) {
	d := newDrill(t)
	second, fresh := d.NewFileSystem(), d.NewFileSystem()
	d.writeTable(wellknown.TargetsConfigMap, fmt.Sprintf(`
efs_stunnel_targets:
  %s:
    stunnel_port: 20495
    mount_target_ip_by_subnet: {subnet-a: 10.9.9.9}
    color: blue
  %s:
    stunnel_port: 20490
owner: storage
`, d.fileSystem, second))
	bound := d.originalVolume("bound", 20495, "data")
	claim := d.originalClaim("data", "bound")
	unknown := d.originalVolume("unknown", 20495, "forgotten")
	d.deleteClaim(d.originalClaim("forgotten", "unknown"))
	d.Eventually("the original volume is Released", func(ctx context.Context) error {
		object, err := d.Client.CoreV1().PersistentVolumes().Get(ctx, unknown.Name, metav1.GetOptions{})
		if err == nil && object.Status.Phase != corev1.VolumeReleased {
			err = fmt.Errorf("it is %s", object.Status.Phase)
		}
		return err
	})
	d.poll()

	table := d.awaitPorts(map[string]int{d.fileSystem: 20495, second: 20490, fresh: 20491})
	if address := table.Targets[d.fileSystem].AddressBySubnet["subnet-a"].String(); address == "10.9.9.9" {
		t.Errorf("the table has the old address %s", address)
	}
	for _, word := range []string{"color: blue", "owner: storage"} {
		if text := d.configMap().Data[wellknown.TargetsKey]; !strings.Contains(text, word) {
			t.Errorf("the table has lost %q:\n%s", word, text)
		}
	}
	d.awaitEvent(bound, wellknown.EventVolumeAdopted)
	adopted, err := d.Client.CoreV1().PersistentVolumes().Get(t.Context(), bound.Name, metav1.GetOptions{})
	d.check(err)
	if adopted.Annotations[wellknown.AnnotationPath] != bound.Spec.NFS.Path || !containsAll(strings.Join(adopted.Finalizers, " "), []string{wellknown.FinalizerVolume}) {
		t.Errorf("the adopted volume has annotations %v, finalizers %v", adopted.Annotations, adopted.Finalizers)
	}
	d.awaitEvent(unknown, wellknown.EventVolumeFailedDelete, "original provisioner", "nothing is removed")
	d.deleteClaim(claim)
	d.awaitGone("the adopted volume", func(ctx context.Context) error {
		_, err := d.Client.CoreV1().PersistentVolumes().Get(ctx, bound.Name, metav1.GetOptions{})
		return err
	})
	if d.Exists(d.fileSystem, bound.Spec.NFS.Path) {
		t.Errorf("the directory of the adopted volume is still there\n%s", d.Story())
	}
	if !d.Exists(d.fileSystem, filepath.Join(unknown.Spec.NFS.Path, "file")) {
		t.Errorf("the directory of the volume that was never seen bound is gone\n%s", d.Story())
	}
}

// TestAdoptedVolumeOfNobodyIsDeleted deletes the object of adopted data that no claim has any
// more. Its name does not say whose it was.
func TestAdoptedVolumeOfNobodyIsDeleted(t *testing.T) {
	d := newDrill(t)
	volume := d.originalVolume("adopted", 20490, "data")
	claim := d.originalClaim("data", "adopted")
	d.poll()
	d.awaitEvent(volume, wellknown.EventVolumeAdopted)

	client := d.Client.CoreV1().PersistentVolumes()
	patch := func(what, patch string, done func(*corev1.PersistentVolume) bool) {
		_, err := client.Patch(d.Context(), volume.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		d.check(err)
		d.Eventually(what, func(ctx context.Context) error {
			object, err := client.Get(ctx, volume.Name, metav1.GetOptions{})
			if err == nil && !done(object) {
				err = fmt.Errorf("it is %s, with finalizers %v", object.Status.Phase, object.Finalizers)
			}
			return err
		})
	}
	held := func(object *corev1.PersistentVolume) bool {
		return slices.Contains(object.Finalizers, wellknown.FinalizerVolume)
	}
	patch("retained", `{"spec": {"persistentVolumeReclaimPolicy": "Retain"}}`, func(o *corev1.PersistentVolume) bool { return !held(o) })
	d.deleteClaim(claim)
	d.awaitVolumeReleased(volume.Name) // or the binder, which believes in the claim still, binds it again
	patch("freed", `{"spec": {"claimRef": null}}`, func(o *corev1.PersistentVolume) bool { return o.Status.Phase == corev1.VolumeAvailable })
	patch("to be deleted", `{"spec": {"persistentVolumeReclaimPolicy": "Delete"}}`, held)
	d.check(client.Delete(d.Context(), volume.Name, metav1.DeleteOptions{}))
	d.awaitGone("the adopted volume", func(ctx context.Context) error {
		_, err := client.Get(ctx, volume.Name, metav1.GetOptions{})
		return err
	})
	d.awaitEvent(volume, wellknown.EventVolumeDeleteSkipped, "no claim has the volume")
	if !d.Exists(d.fileSystem, filepath.Join(volume.Spec.NFS.Path, "file")) {
		t.Errorf("the data of the adopted volume is gone\n%s", d.Story())
	}
}

// TestDiscoveryOfALostTable wants every port back, while a new file system wants one, too.
func TestDiscoveryOfALostTable(t *testing.T) {
	d := newDrill(t)
	other, third := d.NewFileSystem(), d.NewFileSystem()
	d.writeTable(wellknown.TargetsConfigMap, fmt.Sprintf("efs_stunnel_targets: {%s: {stunnel_port: 20500}, %s: {stunnel_port: 20491}}\n", d.fileSystem, other))
	first := d.poll()
	want := portsOf(d.awaitTable("all", func(table ports.Table) string { return missingOf(table, map[string]int{third: 0}) }))
	d.awaitBound(d.claim("data"), d.claimOn(other, "others"), d.claimOn(third, "thirds"))

	lose := func() {
		d.check(d.Client.CoreV1().ConfigMaps(d.Namespace).Delete(t.Context(), wellknown.TargetsConfigMap, metav1.DeleteOptions{}))
	}
	fourth := d.NewFileSystem()
	lose()
	table := d.awaitTable("four", func(table ports.Table) string { return missingOf(table, map[string]int{fourth: 0}) })
	d.wantPorts(table, want)
	first.halt()
	lose()
	fifth := d.NewFileSystem()
	want[fourth] = table.Targets[fourth].Port
	d.poll()
	table = d.awaitTable("five", func(table ports.Table) string { return missingOf(table, map[string]int{fifth: 0}) })
	d.wantPorts(table, want)
	d.awaitBound(d.claimOn(fifth, "fifths"))
}

// missingOf names a file system that a table lacks.
func missingOf(table ports.Table, wanted map[string]int) string {
	for id := range wanted {
		if table.Targets[id].Port == 0 {
			return id + " has no port"
		}
	}
	return ""
}

// wantPorts wants some file systems to have their ports, and no two the same.
func (d *drill) wantPorts(table ports.Table, want map[string]int) {
	d.Helper()
	owners := map[int]string{}
	for id, port := range portsOf(table) {
		if other, ok := owners[port]; ok {
			d.Errorf("%s and %s share port %d", id, other, port)
		}
		owners[port] = id
		if wanted, ok := want[id]; ok && wanted != port {
			d.Errorf("%s has port %d, not %d\n%s", id, port, wanted, d.Story())
		}
	}
}

// TestDiscoveryOfAnUnreadableTable never overwrites it, and says so to those who wait, also
// after a restart.
func TestDiscoveryOfAnUnreadableTable(t *testing.T) {
	d := newDrill(t)
	first := d.poll()
	d.awaitBound(d.claim("before"))
	good := d.configMap().Data[wellknown.TargetsKey]
	const bad = "efs_stunnel_targets: [\n"
	d.writeTable(wellknown.TargetsConfigMap, bad)
	d.awaitEvent(d.configMap(), wellknown.EventTableUnreadable, "nothing is written until it is mended")
	during := d.claim("during") // its agents cannot read the table either, and these have no other
	d.awaitEvent(during, wellknown.EventProvisioningFailed)
	first.halt()
	d.poll()
	after := d.claim("after")
	d.awaitEvent(after, wellknown.EventProvisioningFailed, "ConfigMap "+wellknown.TargetsConfigMap, "cannot be read")
	d.awaitPolls(3)
	if text := d.configMap().Data[wellknown.TargetsKey]; text != bad {
		t.Errorf("it was overwritten:\n%s", text)
	}
	d.writeTable(wellknown.TargetsConfigMap, good)
	d.awaitBound(during, after)
}

// TestDiscoveryOfARestoredCluster has volumes whose ports are each other's by the table.
func TestDiscoveryOfARestoredCluster(t *testing.T) {
	d := newDrill(t)
	other := d.NewFileSystem()
	first := d.poll()
	mine, others := d.awaitBound(d.claim("data")), d.awaitBound(d.claimOn(other, "others"))
	table, err := d.Table()
	d.check(err)
	first.halt()
	swapped := map[string]int{d.fileSystem: table.Targets[other].Port, other: table.Targets[d.fileSystem].Port}
	for id, port := range swapped {
		target := table.Targets[id]
		target.Port = port
		table.Targets[id] = target
	}
	d.writeTable(wellknown.TargetsConfigMap, string(ports.Encode(table)))
	d.poll()
	d.awaitEvent(mine, wellknown.EventPortCorrected, fmt.Sprintf("to %d", swapped[d.fileSystem]))
	d.awaitEvent(others, wellknown.EventPortCorrected, fmt.Sprintf("to %d", swapped[other]))
	d.Eventually("all volumes have the ports of the table", func(ctx context.Context) error {
		for id, names := range map[string][]string{d.fileSystem: {mine.Name, volumes.RootName(d.fileSystem)}, other: {others.Name, volumes.RootName(other)}} {
			for _, name := range names {
				object, err := d.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				if port := ports.VolumeOf(object).Port; port != swapped[id] {
					return fmt.Errorf("%s has %d", name, port)
				}
			}
		}
		return nil
	})
	d.awaitPorts(swapped)
	late := d.claim("late")
	object := d.awaitBound(late) // whose directory must be on the file system that it names
	if !d.Exists(d.fileSystem, object.Annotations[wellknown.AnnotationPath]) {
		t.Errorf("the directory is elsewhere\n%s", d.Story())
	}
}

// TestDiscoveryWithoutAPI has pinned targets only.
func TestDiscoveryWithoutAPI(t *testing.T) {
	d := newDrill(t)
	other := d.NewFileSystem()
	d.EFS = nil
	d.writeTable(wellknown.PinnedConfigMap, fmt.Sprintf(`
efs_stunnel_targets:
  %s: {stunnel_port: 20600, mount_target_ip_by_subnet: {subnet-a: 10.8.8.8}, dns_name: nfs.example.com}
  %s: {mount_target_ip_by_zone: {us-east-1a: 10.8.8.9}}
`, d.fileSystem, other))
	startManager(d.World, nil)
	table := d.awaitTable("both", func(table ports.Table) string { return missingOf(table, map[string]int{d.fileSystem: 0, other: 0}) })
	d.wantPorts(table, map[string]int{d.fileSystem: 20600})
	claim := d.claim("data")
	d.awaitBound(claim, d.claimOn(other, "others"))
	d.deleteClaim(claim)
	d.AwaitVolumeGone(claim)
	if got := table.Targets[d.fileSystem].DNSName; got != "nfs.example.com" {
		t.Errorf("the target's name is %q", got)
	}
}

// TestDiscoveryOnDemand polls for claims that name an unknown file system, and not for each.
func TestDiscoveryOnDemand(t *testing.T) {
	t.Parallel()
	d := newDrill(t)
	began := time.Now()
	d.start(nil, func(o *loops.Options) { o.PollingInterval = time.Hour })
	coming := fmt.Sprintf("fs-%dx2", d.Number)
	claims := d.crowd(20, func(int) string { return coming })
	d.awaitEvent(claims[19], wellknown.EventProvisioningFailed, "waiting: ", coming)
	if id := d.NewFileSystem(); id != coming {
		t.Fatalf("the new file system is %s", id)
	}
	late := d.claimOn(coming, "late") // the others' poll may have come before the file system
	d.awaitBound(append(claims, late)...)
	if polls, most := d.EFS.Calls().List, 2+int(time.Since(began)/(10*time.Second)); polls < 2 || polls > most {
		t.Errorf("%d polls, want at most %d", polls, most)
	}
}
