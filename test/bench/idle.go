package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// idle is what the manager is like when it has many volumes and nothing to do.
type idle struct {
	Volumes    int        `json:"volumes"`
	Conditions conditions `json:"conditions"`
	// Start is from the start of the program until it leads and its loops begin; seconds, of
	// the median start.
	Start   spread  `json:"startSeconds"`
	Memory  memory  `json:"memoryMiB"` // at the end
	Minutes float64 `json:"minutes"`
	Reads   float64 `json:"readsPerMinute"`
	Writes  float64 `json:"writesPerMinute"` // without an election
}

// starts is how often it is started.
const starts = 3

func (b *bench) measureIdle(ctx context.Context) error {
	c := b.ours(defaultLimits())
	result := idle{Volumes: b.options.volumes, Minutes: b.options.idle.Minutes()}
	err := b.inWorld(ctx, fmt.Sprintf("idle with %d volumes", b.options.volumes), c, &result.Conditions, func(ctx context.Context, w *world) error {
		if err := w.fill(ctx, c, b.options.volumes); err != nil {
			return err
		}
		for range starts {
			took, err := w.measureStart(ctx, c)
			if err != nil {
				return err
			}
			result.Start.add(took.Seconds())
		}
		return w.with(ctx, c, func(p *program) error { return result.count(ctx, p, b.options.idle) })
	})
	b.results.Idle = &result
	return err
}

func (w *world) measureStart(ctx context.Context, c contender) (time.Duration, error) {
	p, err := w.start(ctx, c, usualLease())
	if err != nil {
		return 0, err
	}
	return p.took, p.end(os.Interrupt)
}

func (i *idle) count(ctx context.Context, p *program, length time.Duration) error {
	before, err := settled(ctx, p.address, pause)
	if err != nil {
		return err
	}
	if err := sleep(ctx, length); err != nil {
		return err
	}
	after, err := requestsOf(ctx, p.address)
	if err != nil {
		return err
	}
	asked := after.since(before)
	i.Reads, i.Writes = asked.reads()/length.Minutes(), asked.writes()/length.Minutes()
	i.Memory, err = memoryOf(p.cmd.Process.Pid)
	return err
}

func sleep(ctx context.Context, length time.Duration) error {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fill makes bound volumes like the one that the manager makes for a first claim, without their
// directories, and without it.
func (w *world) fill(ctx context.Context, c contender, n int) error {
	const model = "model"
	err := w.with(ctx, c, func(p *program) error {
		if err := w.createClaim(ctx, model); err != nil {
			return err
		}
		if _, err := w.await(ctx, "the model is bound", []string{model}, isBound); err != nil {
			return err
		}
		_, err := settled(ctx, p.address, pause)
		return err
	})
	if err != nil {
		return err
	}
	claim, err := w.client.CoreV1().PersistentVolumeClaims(team).Get(ctx, model, metav1.GetOptions{})
	if err != nil {
		return err
	}
	volume, err := w.client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	claims := names("idle", n)
	if err := each(ctx, claims, func(ctx context.Context, name string) error { return w.createBound(ctx, name, volume) }); err != nil {
		return err
	}
	_, err = w.await(ctx, "all volumes are bound", claims, isBound)
	return err
}

func (w *world) createBound(ctx context.Context, name string, model *corev1.PersistentVolume) error {
	if err := w.createClaim(ctx, name); err != nil {
		return err
	}
	claim, err := w.client.CoreV1().PersistentVolumeClaims(team).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	path := fmt.Sprintf("/%s/%s-%s", team, name, claim.UID)
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: volumes.VolumeName(claim.UID), Labels: model.Labels, Annotations: maps.Clone(model.Annotations),
			Finalizers: model.Finalizers,
		},
		Spec: *model.Spec.DeepCopy(),
	}
	volume.Annotations[wellknown.AnnotationPath] = path
	volume.Spec.NFS.Path = path
	volume.Spec.ClaimRef = &corev1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: team, Name: name, UID: claim.UID,
	}
	_, err = w.client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
	return err
}

// spread is some numbers of the same thing.
type spread struct {
	Median float64   `json:"median"`
	Max    float64   `json:"max"`
	All    []float64 `json:"all"`
}

func (s *spread) add(n float64) {
	s.All = append(s.All, n)
	sorted := slices.Sorted(slices.Values(s.All))
	s.Median, s.Max = sorted[len(sorted)/2], sorted[len(sorted)-1]
}

// spreadOf is in milliseconds.
func spreadOf(all []time.Duration) (s spread) {
	for _, d := range all {
		s.add(float64(d.Microseconds()) / 1000)
	}
	return s
}
