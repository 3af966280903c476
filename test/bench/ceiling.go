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

// ceiling is how fast the cluster's own controllers bind claims that wait and whose volumes are all
// created at once while no provisioner runs. No provisioner's claims are Bound faster.
type ceiling struct {
	Claims     int        `json:"claims"`
	Conditions conditions `json:"conditions"`
	Bind       phase      `json:"bind"`
}

// noProvisioner is the provisioner of a class for which no program provisions.
const noProvisioner = "bench.example.com/none"

func (b *bench) measureCeiling(ctx context.Context) (result ceiling, err error) {
	result = ceiling{Claims: b.options.claims}
	what := fmt.Sprintf("%d volumes made at once, without a provisioner", result.Claims)
	err = b.onTestbed(ctx, what, contender{provisioner: noProvisioner}, &result.Conditions, func(ctx context.Context, bed *testbed) error {
		result.Bind, err = bed.bindAtOnce(ctx, names("ceiling", result.Claims))
		return err
	})
	b.logf("  bound %.0f/s", result.Bind.Rate)
	return result, err
}

// bindAtOnce creates claims, then all of their volumes at once, and waits until they are bound.
func (bed *testbed) bindAtOnce(ctx context.Context, claims []string) (phase, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, phaseDeadline, fmt.Errorf("it takes more than %s", phaseDeadline))
	defer cancel()
	if err := each(ctx, claims, bed.createClaim); err != nil {
		return phase{}, err
	}
	if _, err := bed.await(ctx, "volumes are asked for", claims, isAsked); err != nil {
		return phase{}, err
	}
	waiting, err := bed.client.CoreV1().PersistentVolumeClaims(team).List(ctx, metav1.ListOptions{})
	if err != nil {
		return phase{}, err
	}
	uids := map[string]types.UID{}
	for _, claim := range waiting.Items {
		uids[claim.Name] = claim.UID
	}
	begin := time.Now()
	provide := func(ctx context.Context, name string) error { return bed.createVolume(ctx, name, uids[name]) }
	if err := each(ctx, claims, provide); err != nil {
		return phase{}, err
	}
	times, err := bed.await(ctx, "claims are bound", claims, isBound)
	if err != nil {
		return phase{}, err
	}
	return newPhase(times, func(s claimTimes) (from, handover, to time.Time) { return begin, s.volume, s.bound }, nil), nil
}

func isAsked(s claimTimes) bool { return !s.asked.IsZero() }

// createVolume makes a volume as provisioners do, for one claim.
func (bed *testbed) createVolume(ctx context.Context, claim string, uid types.UID) error {
	_, err := bed.client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
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
