package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	worker "gnuthought.com/efs-stunnel/pkg/worker/batch"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

// batch is a number of claims that a cluster is filled with.
type batch struct {
	claims     []string
	volumeName string // of the directory that they share; without, each has its own
}

// binding is a claim and its volume.
type binding struct {
	claim  *corev1.PersistentVolumeClaim
	volume *corev1.PersistentVolume
}

const (
	// fillWrites is how many requests make a bound claim.
	fillWrites = 5
	// binder is the field manager of what the cluster's binder writes.
	binder = "kube-controller-manager"
)

// fill makes bound claims like a first one of each batch, which the contender provisions and the
// cluster's binder binds. The others are written as those two leave them, without them: the
// binder is one worker and would take some 10 minutes for 50,000. Nothing is made on the file
// system.
func (b *bench) fill(ctx context.Context, bed *testbed, c contender, batches ...batch) ([]*corev1.PersistentVolume, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, phaseDeadline, fmt.Errorf("filling the cluster takes more than %s", phaseDeadline))
	defer cancel()
	models := make([]binding, len(batches))
	for i, batch := range batches {
		var err error
		if models[i], err = bed.makeModel(ctx, c, "model-of-"+batch.claims[0], batch.volumeName); err != nil {
			return nil, fmt.Errorf("making a model: %w", err)
		}
	}
	// The binder would otherwise serve the claims, too, and change them between two of the writes.
	bed.cluster.StopControllers()
	var made []*corev1.PersistentVolume
	begin := time.Now()
	for i, batch := range batches {
		volumes, err := bed.writeBound(ctx, models[i], batch)
		if err != nil {
			return nil, err
		}
		made = append(made, volumes...)
	}
	took := time.Since(begin).Seconds()
	b.logf("  %d bound volumes written in %.0f s, %.0f writes/s", len(made), took, float64(fillWrites*len(made))/took)
	return made, bed.checkFill(ctx, c)
}

// checkFill starts the controllers and has one claim come and go. The binder has synced all
// volumes by then, and must have left them bound.
func (bed *testbed) checkFill(ctx context.Context, c contender) error {
	if err := bed.cluster.StartControllers(); err != nil {
		return err
	}
	if err := bed.with(ctx, c, func(*program) error { return bed.createAndDelete(ctx, "first-after-fill") }); err != nil {
		return err
	}
	claims, err := bed.client.CoreV1().PersistentVolumeClaims(team).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, claim := range claims.Items {
		if claim.Status.Phase != corev1.ClaimBound {
			return fmt.Errorf("claim %s is %s after the fill, and not Bound", claim.Name, claim.Status.Phase)
		}
	}
	volumes, err := bed.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, volume := range volumes.Items {
		if volume.Status.Phase != corev1.VolumeBound {
			return fmt.Errorf("volume %s is %s after the fill, and not Bound", volume.Name, volume.Status.Phase)
		}
	}
	return nil
}

// makeModel has the contender provision one claim.
func (bed *testbed) makeModel(ctx context.Context, c contender, model, volumeName string) (binding, error) {
	err := bed.with(ctx, c, func(p *program) error {
		if _, err := bed.createClaimFor(ctx, model, class, volumeName); err != nil {
			return err
		}
		if _, err := bed.await(ctx, "the model is bound", []string{model}, isBound); err != nil {
			return err
		}
		_, err := settled(ctx, p.address, shortQuietTime)
		return err
	})
	if err != nil {
		return binding{}, err
	}
	claim, err := bed.client.CoreV1().PersistentVolumeClaims(team).Get(ctx, model, metav1.GetOptions{})
	if err != nil {
		return binding{}, err
	}
	volume, err := bed.client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	return binding{claim, volume}, err
}

// writeBound writes the claims of a batch and their volumes, and waits until the observer has
// seen them.
func (bed *testbed) writeBound(ctx context.Context, model binding, b batch) ([]*corev1.PersistentVolume, error) {
	var mu sync.Mutex
	var made []*corev1.PersistentVolume // guarded by mu
	err := each(ctx, b.claims, func(ctx context.Context, name string) error {
		claim, err := bed.createClaimFor(ctx, name, class, b.volumeName)
		if err != nil {
			return err
		}
		volume, err := bed.client.CoreV1().PersistentVolumes().Create(ctx, volumeLike(model.volume, claim, b.volumeName != ""), metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("creating the volume of claim %s: %w", name, err)
		}
		mu.Lock()
		made = append(made, volume)
		mu.Unlock()
		return bed.bind(ctx, model, binding{claim, volume})
	})
	if err != nil {
		return nil, err
	}
	_, err = bed.await(ctx, "all volumes are bound", b.claims, isBound)
	return made, err
}

// bind makes the writes of the cluster's binder, in its order.
func (bed *testbed) bind(ctx context.Context, model, b binding) error {
	options := metav1.UpdateOptions{FieldManager: binder}
	b.volume.Status.Phase = corev1.VolumeBound
	if _, err := bed.client.CoreV1().PersistentVolumes().UpdateStatus(ctx, b.volume, options); err != nil {
		return fmt.Errorf("binding volume %s: %w", b.volume.Name, err)
	}
	claims := bed.client.CoreV1().PersistentVolumeClaims(b.claim.Namespace)
	b.claim.Annotations = model.claim.Annotations // also the binder's own
	b.claim.Spec.VolumeName = b.volume.Name
	claim, err := claims.Update(ctx, b.claim, options)
	if err != nil {
		return fmt.Errorf("binding claim %s: %w", b.claim.Name, err)
	}
	claim.Status = model.claim.Status
	if _, err := claims.UpdateStatus(ctx, claim, options); err != nil {
		return fmt.Errorf("binding claim %s: %w", b.claim.Name, err)
	}
	return nil
}

// volumeLike is the model for another claim, with the model's directory or one of its own.
func volumeLike(model *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim, shared bool) *corev1.PersistentVolume {
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: volumes.VolumeName(claim.UID), Labels: model.Labels, Annotations: maps.Clone(model.Annotations),
			Finalizers: model.Finalizers,
		},
		Spec: *model.Spec.DeepCopy(),
	}
	volume.Spec.ClaimRef = &corev1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
	}
	if volume.Spec.NFS != nil && !shared { // the library's are directories of the node
		volume.Spec.NFS.Path = fmt.Sprintf("/%s/%s-%s", claim.Namespace, claim.Name, claim.UID)
		volume.Annotations[wellknown.AnnotationPath] = volume.Spec.NFS.Path
	}
	return volume
}

// setupBatch is as large as a Job's.
const setupBatch = 512

// makeDirectories makes the directories and owners of volumes, as mount Jobs would have, so that
// their deletion finds what it finds in a cluster.
func (bed *testbed) makeDirectories(ctx context.Context, made []*corev1.PersistentVolume) error {
	cluster, err := bed.client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return err
	}
	var ops []operations.Operation
	for _, volume := range made {
		ref := volume.Spec.ClaimRef
		ops = append(ops, operations.Operation{
			Kind: operations.Setup, Path: volume.Spec.NFS.Path, Directory: operations.Directory{Mode: "0777"},
			Owner: operations.Owner{
				Volume: volume.Name, Cluster: string(cluster.UID), Namespace: ref.Namespace, Claim: ref.Name, ClaimUID: string(ref.UID),
			},
		})
	}
	return setUp(ctx, filepath.Join(bed.folder, fileSystemID), ops)
}

// setUp carries out operations on the file system in a folder.
func setUp(ctx context.Context, folder string, ops []operations.Operation) error {
	fileSystem, err := fsroot.Open(ctx, folder, fsroot.Options{FileSystemID: fileSystemID})
	if err != nil {
		return fmt.Errorf("opening the file system: %w", err)
	}
	defer fileSystem.Close()
	for batch := range slices.Chunk(ops, setupBatch) {
		if report := worker.Run(ctx, fileSystem, batch, worker.Options{}); !report.Succeeded() {
			return errors.New("making directories: " + string(report.Encode()))
		}
	}
	return nil
}
