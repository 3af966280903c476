//go:build integration

package integration_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/controller/loops"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
	"gnuthought.com/efs-stunnel/test/integration/crash"
	"gnuthought.com/efs-stunnel/test/integration/kubelet"
	"gnuthought.com/efs-stunnel/test/integration/world"
)

// drill is a world in which things go wrong: it has a file system and a class, ready for a manager.
type drill struct {
	*world.World
	fileSystem string
	class      string
}

func newDrill(t testing.TB) *drill {
	t.Helper()
	w := newWorld(t)
	return &drill{World: w, fileSystem: w.NewFileSystem(), class: w.NewClass("efs", nil).Name}
}

// start starts a manager that waits less than a real one, and sees no world but its own.
func (d *drill) start(point *crash.Point, edits ...func(*loops.Options)) *manager {
	d.Helper()
	return startManager(d.World, point, append(quickEdits(d), edits...)...)
}

func quickEdits(d *drill) []func(*loops.Options) { return []func(*loops.Options){d.quick} }

// quick is for worlds beside others. A manager respects every loopback volume's port, and makes
// root volumes for whatever file system a volume names, as long as it is for it.
func (d *drill) quick(o *loops.Options) {
	o.Range = d.ports()
	for k := 1; k <= portsPerWorld; k++ {
		o.Filter.IDs = append(o.Filter.IDs, fmt.Sprintf("fs-%dx%d", d.Number, k))
	}
	o.SweepDelay = time.Second // times of Jobs are in seconds
}

const portsPerWorld = 40

func (d *drill) ports() ports.Range {
	return ports.Range{Base: 33000 + d.Number%700*portsPerWorld, Count: portsPerWorld}
}

// claim makes a claim of the class, on the file system.
func (d *drill) claim(name string, edits ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	d.Helper()
	return d.claimOn(d.fileSystem, name, edits...)
}

func (d *drill) claimOn(fileSystem, name string, edits ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	d.Helper()
	on := world.WithLabels(map[string]string{wellknown.LabelFileSystemID: fileSystem})
	return d.NewClaim(name, d.class, append([]func(*corev1.PersistentVolumeClaim){on}, edits...)...)
}

func withVolumeName(name string) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.Selector.MatchLabels[wellknown.LabelVolumeName] = name
	}
}

func oneGibibyte() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
}

// deleteClaim does not wait.
func (d *drill) deleteClaim(claim *corev1.PersistentVolumeClaim) {
	d.Helper()
	d.check(d.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Delete(d.Context(), claim.Name, metav1.DeleteOptions{}))
}

func (d *drill) check(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

// awaitBound gives the volume.
func (d *drill) awaitBound(claims ...*corev1.PersistentVolumeClaim) (last *corev1.PersistentVolume) {
	d.Helper()
	for _, claim := range claims {
		_, last = d.AwaitBound(claim)
	}
	return last
}

// jobs are those of a kind on a file system, in the order of their numbers.
func (d *drill) jobs(ctx context.Context, kind mountjobs.Kind, fileSystem string) []batchv1.Job {
	d.Helper()
	found, err := d.Client.BatchV1().Jobs(d.Namespace).List(ctx, metav1.ListOptions{})
	d.check(err)
	jobs := slices.DeleteFunc(found.Items, func(job batchv1.Job) bool {
		name, err := mountjobs.Identify(&job)
		return err != nil || name.Kind != kind || name.FileSystemID != fileSystem
	})
	slices.SortFunc(jobs, func(a, b batchv1.Job) int { return strings.Compare(a.Name, b.Name) })
	return jobs
}

func (d *drill) mountJobs() []batchv1.Job {
	d.Helper()
	return d.jobs(d.Context(), mountjobs.Mount, d.fileSystem)
}

// operations are those of a Job.
func (d *drill) operations(job batchv1.Job) []operations.Operation {
	d.Helper()
	ops, err := mountjobs.Operations(&job)
	d.check(err)
	return ops
}

// awaitEvent waits for an event about an object that has all of the words.
func (d *drill) awaitEvent(object metav1.Object, reason string, words ...string) corev1.Event {
	d.Helper()
	var found corev1.Event
	d.Eventually(fmt.Sprintf("%s has an event %s with %q", object.GetName(), reason, words), func(ctx context.Context) error {
		events, err := d.eventsAbout(ctx, object, reason)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(events, func(event corev1.Event) bool { return containsAll(event.Message, words) })
		if i < 0 {
			return fmt.Errorf("it has %d: %q", len(events), messagesOf(events))
		}
		found = events[i]
		return nil
	})
	return found
}

func containsAll(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}

func messagesOf(events []corev1.Event) []string {
	var all []string
	for _, event := range events {
		all = append(all, event.Message)
	}
	return all
}

// eventsAbout are those with a reason, or all if that is empty.
func (d *drill) eventsAbout(ctx context.Context, object metav1.Object, reason string) ([]corev1.Event, error) {
	namespace := object.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	selector := "involvedObject.uid=" + string(object.GetUID())
	if reason != "" {
		selector += ",reason=" + reason
	}
	found, err := d.Client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: selector})
	if err != nil {
		return nil, err
	}
	return found.Items, nil
}

// owners are the volumes in a file system's ledger, by path.
func (d *drill) owners(fileSystem string) map[string][]string {
	d.Helper()
	found := map[string][]string{}
	root := filepath.Join(d.Folder(fileSystem), wellknown.OwnersDirectory)
	err := filepath.WalkDir(root, func(name string, _ fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if volume, ok := strings.CutPrefix(filepath.Base(name), wellknown.OwnerPrefix); ok && err == nil {
			path := strings.TrimPrefix(filepath.Dir(name), root)
			found[path] = append(found[path], volume)
		}
		return err
	})
	d.check(err)
	return found
}

// trash is what is in a file system's trash, also what is being swept.
func (d *drill) trash(fileSystem string) []string {
	d.Helper()
	const sweeping = "@@sweeping"
	left := d.names(fileSystem, filepath.Join(wellknown.TrashDirectory, sweeping))
	for _, name := range d.names(fileSystem, wellknown.TrashDirectory) {
		if name != sweeping {
			left = append(left, name)
		}
	}
	return left
}

// names are the directories in one of a file system'd.
func (d *drill) names(fileSystem, path string) []string {
	d.Helper()
	entries, err := os.ReadDir(filepath.Join(d.Folder(fileSystem), path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// wantVolumes wants exactly the volumes of some claims, each with its directory and its entry
// in the ledger, and no others of the world.
func (d *drill) wantVolumes(claims ...*corev1.PersistentVolumeClaim) {
	d.Helper()
	owned := map[string]bool{}
	for _, volumes := range d.owners(d.fileSystem) {
		for _, volume := range volumes {
			owned[volume] = true
		}
	}
	for _, claim := range claims {
		name := volumes.VolumeName(claim.UID)
		object, err := d.Client.CoreV1().PersistentVolumes().Get(d.Context(), name, metav1.GetOptions{})
		d.check(err)
		if path := object.Annotations[wellknown.AnnotationPath]; path == "" || !d.Exists(d.fileSystem, path) {
			d.Errorf("volume %s has the path %q, which is not there", name, path)
		}
		if !owned[name] {
			d.Errorf("the ledger does not have volume %s", name)
		}
	}
	found := d.provisioned(d.Context())
	if len(found) != len(claims) || len(owned) != len(claims) {
		d.Errorf("%d volumes, %d owners for %d claims\n%s", len(found), len(owned), len(claims), d.Story())
	}
}

// provisioned are the volumes of the world's provisioner.
func (d *drill) provisioned(ctx context.Context) []corev1.PersistentVolume {
	d.Helper()
	found, err := d.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	d.check(err)
	return slices.DeleteFunc(found.Items, func(object corev1.PersistentVolume) bool {
		return object.Annotations[wellknown.AnnotationProvisionedBy] != d.Provisioner
	})
}

// awaitCleaned wants nothing left of claims that were deleted: no volume, no directory, no
// owner.
func (d *drill) awaitCleaned(claims ...*corev1.PersistentVolumeClaim) {
	d.Helper()
	for _, claim := range claims {
		d.AwaitVolumeGone(claim)
	}
	if owners := d.owners(d.fileSystem); len(owners) > 0 {
		d.Errorf("the ledger still has %v\n%s", owners, d.Story())
	}
	if left := d.names(d.fileSystem, d.Team); len(left) > 0 {
		d.Errorf("directories %q are left\n%s", left, d.Story())
	}
}

// awaitAllGone wants no trash either.
func (d *drill) awaitAllGone(claims ...*corev1.PersistentVolumeClaim) {
	d.Helper()
	d.awaitCleaned(claims...)
	d.Eventually("the trash is empty", func(context.Context) error {
		if left := d.trash(d.fileSystem); len(left) > 0 {
			return fmt.Errorf("it has %q", left)
		}
		return nil
	})
}

// gate holds a container before its program, until it is opened.
type gate struct {
	reached chan struct{} // closed when a container is there
	open    chan struct{}
}

func newGate() *gate { return &gate{reached: make(chan struct{}), open: make(chan struct{})} }

// fate is a good one, but for the gate.
func (g *gate) fate() kubelet.Fate {
	return kubelet.Fate{Before: func(ctx context.Context, _ kubelet.Run) {
		close(g.reached)
		select {
		case <-g.open:
		case <-ctx.Done():
		}
	}}
}

// await waits until a container is at the gate.
func (d *drill) await(g *gate) {
	d.Helper()
	d.Eventually("a container is at the gate", func(context.Context) error {
		select {
		case <-g.reached:
			return nil
		default:
			return errors.New("none is")
		}
	})
}

// awaitGone waits until reading an object says that there is none.
func (d *drill) awaitGone(what string, get func(context.Context) error) {
	d.Helper()
	d.Eventually(what+" is gone", func(ctx context.Context) error {
		err := get(ctx)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return errors.New("it is there")
	})
}
