package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ceiling is what the cluster's own controllers make of claims that wait and whose volumes are all
// made at once, by nobody who has anything else to do. No provisioner's claims are Bound faster.
type ceiling struct {
	Claims     int        `json:"claims"`
	Conditions conditions `json:"conditions"`
	Bind       phase      `json:"bind"`
}

// nobody provisions for a class that names it.
const nobody = "bench.example.com/nobody"

func (b *bench) measureCeiling(ctx context.Context) (result ceiling, err error) {
	result = ceiling{Claims: b.options.claims}
	what := fmt.Sprintf("%d volumes made at once, without a provisioner", result.Claims)
	err = b.inWorld(ctx, what, contender{provisioner: nobody}, &result.Conditions, func(ctx context.Context, w *world) error {
		result.Bind, err = w.bindAtOnce(ctx, names("ceiling", result.Claims))
		return err
	})
	b.say("  bound %.0f/s", result.Bind.Rate)
	return result, err
}

// bindAtOnce gives claims that wait their volumes.
func (w *world) bindAtOnce(ctx context.Context, claims []string) (phase, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, phaseDeadline, fmt.Errorf("it takes more than %s", phaseDeadline))
	defer cancel()
	if err := each(ctx, claims, w.createClaim); err != nil {
		return phase{}, err
	}
	if _, err := w.await(ctx, "volumes are asked for", claims, isAsked); err != nil {
		return phase{}, err
	}
	waiting, err := w.client.CoreV1().PersistentVolumeClaims(team).List(ctx, metav1.ListOptions{})
	if err != nil {
		return phase{}, err
	}
	uids := map[string]types.UID{}
	for _, claim := range waiting.Items {
		uids[claim.Name] = claim.UID
	}
	begin := time.Now()
	provide := func(ctx context.Context, name string) error { return w.createVolume(ctx, name, uids[name]) }
	if err := each(ctx, claims, provide); err != nil {
		return phase{}, err
	}
	stories, err := w.await(ctx, "claims are bound", claims, isBound)
	if err != nil {
		return phase{}, err
	}
	return newPhase(stories, func(s story) (from, handover, to time.Time) { return begin, s.volume, s.bound }, nil), nil
}

func isAsked(s story) bool { return !s.asked.IsZero() }

// createVolume makes a volume as provisioners do, for one claim.
func (w *world) createVolume(ctx context.Context, claim string, uid types.UID) error {
	_, err := w.client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + string(uid)},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName:              class,
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			ClaimRef:                      &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: team, Name: claim, UID: uid},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "127.0.0.1", Path: "/" + claim}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating the volume of claim %s: %w", claim, err)
	}
	return nil
}
