package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ledger "gnuthought.com/efs-stunnel/pkg/directories"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// fill makes bound claims like a first one that the contender provisions, without it. With a
// volume name they share one directory. Nothing is made on the file system.
func (w *world) fill(ctx context.Context, c contender, claims []string, volumeName string) ([]*corev1.PersistentVolume, error) {
	model, err := w.makeModel(ctx, c, "model-of-"+claims[0], volumeName)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var made []*corev1.PersistentVolume // guarded by mu
	err = each(ctx, claims, func(ctx context.Context, name string) error {
		claim, err := w.createClaimFor(ctx, name, class, volumeName)
		if err != nil {
			return err
		}
		volume, err := w.client.CoreV1().PersistentVolumes().Create(ctx, volumeLike(model, claim, volumeName != ""), metav1.CreateOptions{})
		mu.Lock()
		defer mu.Unlock()
		made = append(made, volume)
		return err
	})
	if err != nil {
		return nil, err
	}
	_, err = w.await(ctx, "all volumes are bound", claims, isBound)
	return made, err
}

// makeModel has the contender provision one claim.
func (w *world) makeModel(ctx context.Context, c contender, model, volumeName string) (*corev1.PersistentVolume, error) {
	err := w.with(ctx, c, func(p *program) error {
		if _, err := w.createClaimFor(ctx, model, class, volumeName); err != nil {
			return err
		}
		if _, err := w.await(ctx, "the model is bound", []string{model}, isBound); err != nil {
			return err
		}
		_, err := settled(ctx, p.address, pause)
		return err
	})
	if err != nil {
		return nil, err
	}
	claim, err := w.client.CoreV1().PersistentVolumeClaims(team).Get(ctx, model, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return w.client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
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
func (w *world) makeDirectories(ctx context.Context, made []*corev1.PersistentVolume) error {
	cluster, err := w.client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return err
	}
	fileSystem, err := ledger.Open(ctx, filepath.Join(w.folder, fileSystemID), ledger.Options{FileSystemID: fileSystemID})
	if err != nil {
		return fmt.Errorf("opening the file system: %w", err)
	}
	defer fileSystem.Close()
	for batch := range slices.Chunk(made, setupBatch) {
		var operations []ledger.Operation
		for _, volume := range batch {
			ref := volume.Spec.ClaimRef
			operations = append(operations, ledger.Operation{
				Kind: ledger.Setup, Path: volume.Spec.NFS.Path, Directory: ledger.Directory{Mode: "0777"},
				Owner: ledger.Owner{
					Volume: volume.Name, Cluster: string(cluster.UID), Namespace: ref.Namespace, Claim: ref.Name, ClaimUID: string(ref.UID),
				},
			})
		}
		if report := fileSystem.Run(ctx, operations, func(int, int) {}); !report.Succeeded() {
			return errors.New("making directories: " + string(report.Encode()))
		}
	}
	return nil
}
