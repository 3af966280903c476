//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
	"gnuthought.com/efs-stunnel/test/integration/crash"
	"gnuthought.com/efs-stunnel/test/integration/kubelet"
)

// TestRecoveryFromACrashAnywhere has the manager die before and after each of its writes, in
// lives of several kinds. Nothing of that may be seen in the end.
func TestRecoveryFromACrashAnywhere(t *testing.T) {
	lives := map[string]life{
		"two claims of one path":  {nil, (*drill).liveAsTwo},
		"retained":                {(*drill).retain, (*drill).liveRetained},
		"setups that fail":        {(*drill).failTwice, (*drill).liveWithFailures},
		"a volume of another age": {(*drill).inherit, (*drill).liveAdopted},
		"growing":                 {(*drill).expandable, (*drill).liveGrowing},
	}
	for name, l := range lives {
		t.Run(name, func(t *testing.T) {
			writes := l.measure(t)
			for _, point := range crashes(firstWrite, writes, tableWrites) {
				t.Run(point.String(), func(t *testing.T) {
					t.Parallel()
					l.run(t, point)
					t.Log(point)
				})
			}
		})
	}
}

const (
	// tableWrites also tell of the file systems of worlds beside this one.
	tableWrites = "/configmaps"
	// firstWrite is after root volume and root claim, which TestLifeOfAClaimWithACrash is about.
	firstWrite = 3
)

// life is what happens to claims. It ends with what must be true then, whatever happened to
// the manager meanwhile.
type life struct {
	prepare func(*drill) // before there is a manager; nil does nothing
	live    func(*drill)
}

// measure is the number of writes of a manager that does not die.
func (l life) measure(t *testing.T) int {
	t.Helper()
	counting := &crash.Point{Ignore: tableWrites}
	t.Run("without a crash", func(t *testing.T) { l.run(t, counting) })
	writes := len(counting.Writes())
	if writes < firstWrite {
		t.Fatalf("a life takes %d writes", writes)
	}
	return writes
}

func (l life) run(t *testing.T, point *crash.Point) {
	t.Helper()
	d := newDrill(t)
	if l.prepare != nil {
		l.prepare(d)
	}
	d.startTwice(point)
	l.live(d)
}

// startTwice starts a manager that dies at the point, and then another one, as a kubelet would.
func (d *drill) startTwice(point *crash.Point) {
	d.Helper()
	first := d.start(point)
	ctx, stop := context.WithCancel(context.WithoutCancel(d.Context()))
	again, err := newManager(ctx, d.World, d.Config, quickEdits(d))
	d.check(err)
	ended := make(chan error, 1)
	go func() {
		<-first.ended
		ended <- again(ctx)
	}()
	d.Cleanup(func() {
		first.stop() // if it lives to the end, the second has nothing to do
		stop()
		if err := <-ended; err != nil {
			d.Errorf("the second manager ended with an error: %v", err)
		}
	})
}

// liveAsTwo has two claims share a directory, and go one after the other.
func (d *drill) liveAsTwo() {
	shared := withVolumeName("shared")
	one, other := d.claim("one", shared), d.claim("other", shared)
	d.awaitBound(one, other)
	d.wantVolumes(one, other)
	d.deleteClaim(one)
	d.AwaitVolumeGone(one)
	if !d.Exists(d.fileSystem, d.Team+"/shared") {
		d.Errorf("the directory went with the first of two claims\n%s", d.Story())
	}
	d.wantVolumes(other)
	d.deleteClaim(other)
	d.awaitAllGone(one, other)
}

func (d *drill) retain() {
	keep := corev1.PersistentVolumeReclaimRetain
	d.class = d.NewClass("retaining", nil, func(class *storagev1.StorageClass) { class.ReclaimPolicy = &keep }).Name
}

// liveRetained wants directory and ledger to stay, and the next claim of that name to get them.
func (d *drill) liveRetained() {
	named := withVolumeName("kept")
	claim := d.claim("data", named)
	d.awaitBound(claim)
	file := filepath.Join(d.Folder(d.fileSystem), d.Team, "kept", "file")
	d.check(os.WriteFile(file, []byte("precious"), 0o600))
	d.deleteClaim(claim)
	d.awaitReleased(claim)
	d.check(d.Client.CoreV1().PersistentVolumes().Delete(d.Context(), volumes.VolumeName(claim.UID), metav1.DeleteOptions{}))
	d.AwaitVolumeGone(claim)
	again := d.claim("again", named)
	d.awaitBound(again)
	if text, err := os.ReadFile(file); err != nil || string(text) != "precious" {
		d.Errorf("the retained file has %q, error %v\n%s", text, err, d.Story())
	}
}

// failTwice has something in the way of the claim, and a Job that is killed before that is seen.
func (d *drill) failTwice() {
	d.check(os.MkdirAll(filepath.Join(d.Folder(d.fileSystem), d.Team), 0o755))
	d.check(os.WriteFile(filepath.Join(d.Folder(d.fileSystem), d.Team, "late"), nil, 0o600))
	d.Kubelet.PlayNext(kubelet.Fate{Ending: kubelet.Killed})
}

func (d *drill) liveWithFailures() {
	claim := d.claim("data", withVolumeName("late"))
	d.Eventually("a Job has failed", func(context.Context) error {
		for _, run := range d.Kubelet.Runs() {
			if run.ExitCode == 1 {
				return nil
			}
		}
		return fmt.Errorf("%d have run", len(d.Kubelet.Runs()))
	})
	d.check(os.Remove(filepath.Join(d.Folder(d.fileSystem), d.Team, "late")))
	d.awaitBound(claim)
	d.wantVolumes(claim)
	d.deleteClaim(claim)
	d.awaitCleaned(claim)
}

// inherit has a claim bound to a volume of the original system, with a file in it.
func (d *drill) inherit() {
	d.originalVolume("old", d.ports().Base, "data")
	d.originalClaim("data", "old")
}

func (d *drill) liveAdopted() {
	d.Eventually("the volume is adopted", func(ctx context.Context) error {
		object, err := d.Client.CoreV1().PersistentVolumes().Get(ctx, d.Named("old"), metav1.GetOptions{})
		if err == nil && object.Annotations[wellknown.AnnotationPath] == "" {
			err = fmt.Errorf("it has the annotations %v", object.Annotations)
		}
		return err
	})
	path := "/" + d.Team + "/old"
	if owners := d.owners(d.fileSystem)[path]; len(owners) != 1 || owners[0] != d.Named("old") {
		d.Errorf("the ledger has the owners %v\n%s", d.owners(d.fileSystem), d.Story())
	}
	if !d.Exists(d.fileSystem, path+"/file") {
		d.Errorf("the original file is gone\n%s", d.Story())
	}
	d.check(d.Client.CoreV1().PersistentVolumeClaims(d.Team).Delete(d.Context(), "data", metav1.DeleteOptions{}))
	d.awaitGone("the adopted volume", func(ctx context.Context) error {
		_, err := d.Client.CoreV1().PersistentVolumes().Get(ctx, d.Named("old"), metav1.GetOptions{})
		return err
	})
	d.awaitCleaned()
}

func (d *drill) expandable() {
	yes := true
	d.class = d.NewClass("growing", nil, func(class *storagev1.StorageClass) { class.AllowVolumeExpansion = &yes }).Name
}

func (d *drill) liveGrowing() {
	claim := d.claim("data")
	d.awaitBound(claim)
	_, err := d.Client.CoreV1().PersistentVolumeClaims(d.Team).Patch(d.Context(), claim.Name, types.MergePatchType,
		[]byte(`{"spec":{"resources":{"requests":{"storage":"5Gi"}}}}`), metav1.PatchOptions{})
	d.check(err)
	d.Eventually("claim and volume have grown", func(ctx context.Context) error {
		object, err1 := d.Client.CoreV1().PersistentVolumes().Get(ctx, volumes.VolumeName(claim.UID), metav1.GetOptions{})
		grown, err2 := d.Client.CoreV1().PersistentVolumeClaims(d.Team).Get(ctx, claim.Name, metav1.GetOptions{})
		if err1 != nil || err2 != nil {
			return fmt.Errorf("%w, %w", err1, err2)
		}
		want := resource.MustParse("5Gi")
		if is, has := grown.Status.Capacity.Storage(), object.Spec.Capacity.Storage(); want.Cmp(*is) != 0 || want.Cmp(*has) != 0 {
			return fmt.Errorf("the claim has %s, the volume %s", is, has)
		}
		return nil
	})
	d.wantVolumes(claim)
	d.deleteClaim(claim)
	d.awaitCleaned(claim)
}

// originalVolume is one that the original system made, with its directory and a file in it. Its
// name is Named(what); for says for which claim, "" for none.
func (d *drill) originalVolume(what string, port int, claim string) *corev1.PersistentVolume {
	d.Helper()
	path := "/" + d.Team + "/" + what
	d.check(os.MkdirAll(filepath.Join(d.Folder(d.fileSystem), path), 0o777))
	d.check(os.WriteFile(filepath.Join(d.Folder(d.fileSystem), path, "file"), []byte("precious"), 0o600))
	object := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: d.Named(what), Annotations: map[string]string{
			wellknown.AnnotationProvisionedBy: d.Provisioner,
			wellknown.AnnotationFileSystemID:  d.fileSystem,
		}},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Capacity:    oneGibibyte(),
			ClaimRef:    &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: d.Team, Name: claim},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				NFS: &corev1.NFSVolumeSource{Server: wellknown.LoopbackAddress, Path: path},
			},
			MountOptions:                  []string{fmt.Sprintf("port=%d", port)},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			StorageClassName:              d.class,
		},
	}
	if claim == "" {
		object.Spec.ClaimRef = nil
	}
	made, err := d.Client.CoreV1().PersistentVolumes().Create(d.Context(), object, metav1.CreateOptions{})
	d.check(err)
	return made
}

// originalClaim is bound to a volume of the original system.
func (d *drill) originalClaim(name, what string) *corev1.PersistentVolumeClaim {
	d.Helper()
	claim := d.NewClaim(name, d.class, func(claim *corev1.PersistentVolumeClaim) { claim.Spec.VolumeName = d.Named(what) })
	d.awaitBound(claim)
	return claim
}
