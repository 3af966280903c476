package main

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ceiling is how fast the cluster's own controllers serve claims that are created at once, when each volume
// exists as soon as they ask for it and no provisioner runs. No provisioner's claims are Bound faster.
type ceiling struct {
	Claims     int        `json:"claims"`
	Conditions conditions `json:"conditions"`
	Bind       phase      `json:"bind"`
}

// noProvisioner is the provisioner of a class for which no program provisions.
const noProvisioner = "bench.example.com/none"

func (b *bench) measureCeiling(ctx context.Context) (result ceiling, err error) {
	result = ceiling{Claims: b.options.claims}
	what := fmt.Sprintf("%d claims at once, without a provisioner", result.Claims)
	err = b.onTestbed(ctx, what, contender{provisioner: noProvisioner}, &result.Conditions, func(ctx context.Context, bed *testbed) error {
		result.Bind, err = bed.bindAsAsked(ctx, names("ceiling", result.Claims))
		return err
	})
	b.logf("  bound %.0f/s", result.Bind.Rate)
	return result, err
}

// bindAsAsked creates claims, and the volume of each at the moment when the cluster asks for it, and waits until
// they are bound.
func (bed *testbed) bindAsAsked(ctx context.Context, claims []string) (phase, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, phaseDeadline, fmt.Errorf("it takes more than %s", phaseDeadline))
	defer cancel()
	volumes, making := errgroup.WithContext(ctx)
	volumes.SetLimit(parallel)
	bed.whenAsked(func(claim string, uid types.UID) {
		volumes.Go(func() error { return bed.createVolume(making, claim, uid) })
	})
	work := bed.creation("binder alone", claims)
	if err := each(ctx, claims, work.request); err != nil {
		return phase{}, err
	}
	times, err := bed.await(making, "claims are bound", claims, work.done)
	if err := errors.Join(err, volumes.Wait()); err != nil {
		return phase{}, err
	}
	return newPhase(times, work.span, nil), nil
}

// createVolume makes a volume as provisioners do, for one claim.
func (bed *testbed) createVolume(ctx context.Context, claim string, uid types.UID) error {
	_, err := bed.client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + string(uid)},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName:              class,
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Capacity:                      oneGibibyte(),
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
