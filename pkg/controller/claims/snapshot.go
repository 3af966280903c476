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

	"gnuthought.com/efs-stunnel/pkg/controller/kubeobjects"
	"gnuthought.com/efs-stunnel/pkg/controller/lifecycle"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// snapshot is which claims and volumes there were when it was read.
type snapshot struct {
	claims  map[types.UID]bool
	volumes map[string]bool
}

// snapshotLife bounds how long ago "live" may be, for the volumes of one mount Job.
const snapshotLife = 30 * time.Second

// snapshotAfter is which claims and volumes of a mount Job with many operations there were after it:
// reading them one by one can be most of a burst's requests. ok is false for small Jobs, when nothing
// could be read, and for a volume that was created since.
func (c *Controller) snapshotAfter(ctx context.Context, creation lifecycle.CreateVolume, volume string) (now snapshot, ok bool) {
	if creation.JobSize <= kubeobjects.ManyObjects {
		return snapshot{}, false
	}
	if _, created := c.created.Get(volume); created {
		return snapshot{}, false
	}
	if known, ok := c.snapshots.Get(creation.Job); ok {
		now, ok = known.(snapshot)
		return now, ok
	}
	read, err, _ := c.reading.Do(creation.Job, func() (any, error) { return c.readSnapshot(ctx, creation.Job, volume) })
	if err != nil {
		c.options.Log.WarnContext(ctx, "reading the claims and volumes of a Job at once failed; reading them one by one",
			slog.String("job", creation.Job), slog.Any("err", err))
		return snapshot{}, false
	}
	now, ok = read.(snapshot)
	c.snapshots.Set(creation.Job, now, snapshotLife)
	return now, ok
}

func (c *Controller) readSnapshot(ctx context.Context, job, volume string) (snapshot, error) {
	names, owners, err := c.namesOf(job, volume)
	if err != nil {
		return snapshot{}, err
	}
	now := snapshot{claims: map[types.UID]bool{}, volumes: map[string]bool{}}
	volumes, err := c.live.Volumes(ctx, names) // first, as in confirm
	if err != nil {
		return snapshot{}, err
	}
	for name := range volumes {
		now.volumes[name] = true
	}
	claims, err := c.live.Claims(ctx, owners)
	for _, claim := range claims {
		now.claims[claim.UID] = true
	}
	return now, err
}

// namesOf are the volumes and the claims of a Job that has an operation for a volume.
func (c *Controller) namesOf(job, volume string) (names []string, owners []types.NamespacedName, err error) {
	all := c.gatherer.Caches.JobsOfVolume(volume)
	at := slices.IndexFunc(all, func(j *batchv1.Job) bool { return j.Name == job })
	if at < 0 {
		return nil, nil, fmt.Errorf("the cache has no Job %s any more", job)
	}
	operations, err := mountjobs.Operations(all[at])
	for _, o := range operations {
		names = append(names, o.Volume)
		owners = append(owners, types.NamespacedName{Namespace: o.Namespace, Name: o.Claim})
	}
	return names, owners, err
}

// agrees says that the caches had the same. If they had not, the cluster may only have changed since.
func (s snapshot) agrees(state lifecycle.State, volume *corev1.PersistentVolume) bool {
	return s.claims[volume.Spec.ClaimRef.UID] == (state.Claim != nil) && !s.volumes[volume.Name]
}
