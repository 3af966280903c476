package claims

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// snapshot are the claims and volumes of a batch of a mount Job, read at once after it.
type snapshot struct {
	claims  map[types.NamespacedName]*corev1.PersistentVolumeClaim
	volumes map[string]*corev1.PersistentVolume
}

// snapshotLife bounds how long ago "live" may be, for the volumes of one mount Job.
const snapshotLife = 30 * time.Second

// snapshotAfter reads the objects of a mount Job with many operations at once: one by one they can be most of a burst's
// requests. ok is false for small Jobs, when nothing could be read, and for a volume that was created since.
func (c *Controller) snapshotAfter(ctx context.Context, creation decide.CreateVolume, volume string) (now snapshot, ok bool) {
	if creation.BatchSize <= objects.ManyObjects {
		return snapshot{}, false
	}
	if _, created := c.created.Get(volume); created {
		return snapshot{}, false
	}
	batch := fmt.Sprintf("%s/%d", creation.Job, creation.Batch)
	read, err, _ := c.reading.Do(batch, func() (any, error) {
		if known, ok := c.snapshots.Get(batch); ok {
			return known, nil
		}
		now, err := c.readSnapshot(ctx, creation, volume)
		if err == nil {
			c.snapshots.Set(batch, now, snapshotLife)
		}
		return now, err
	})
	if err != nil {
		c.options.Log.WarnContext(ctx, "reading the claims and volumes of a Job at once failed; reading them one by one",
			slog.String("job", creation.Job), slog.Any("err", err))
		return snapshot{}, false
	}
	now, ok = read.(snapshot)
	return now, ok
}

// readSnapshot reads the volumes and claims of the batch of a Job that has an operation for a volume. Volumes are
// read first, as in confirm.
func (c *Controller) readSnapshot(ctx context.Context, creation decide.CreateVolume, volume string) (now snapshot, err error) {
	jobs := c.gatherer.Caches.JobsOfVolume(volume)
	i := slices.IndexFunc(jobs, func(job *batchv1.Job) bool { return job.Name == creation.Job })
	if i < 0 {
		return now, fmt.Errorf("the cache has no Job %s any more", creation.Job)
	}
	ops, err := mountjobs.Operations(jobs[i], func(batch int) bool { return batch == creation.Batch })
	if err != nil {
		return now, err
	}
	var names []string
	var owners []types.NamespacedName
	for _, o := range ops {
		names = append(names, o.Volume)
		owners = append(owners, types.NamespacedName{Namespace: o.Namespace, Name: o.Claim})
	}
	known := c.gatherer.Caches
	if now.volumes, err = known.VolumesNow(ctx, c.live, names); err != nil {
		return now, err
	}
	now.claims, err = known.ClaimsNow(ctx, c.live, owners)
	return now, err
}

// agrees reports whether the caches had the same. If they had not, the cluster may only have changed since.
func (s snapshot) agrees(state decide.State, volume *corev1.PersistentVolume) bool {
	ref := volume.Spec.ClaimRef
	claim := s.claims[types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}]
	return (claim != nil && claim.UID == ref.UID) == (state.Claim != nil) && s.volumes[volume.Name] == nil
}
