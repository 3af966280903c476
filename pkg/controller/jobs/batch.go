package jobs

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/controller/lifecycle"
	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// liveObjects are the volumes and claims that a batch with cleanups is about, read just now.
type liveObjects struct {
	volumes map[string]*corev1.PersistentVolume
	claims  map[types.NamespacedName]*corev1.PersistentVolumeClaim
}

// packedOf finds, among the operations that are due, those that a batch was packed of. The batch has
// their order.
func packedOf(due []lifecycle.Pending, batch []operations.Operation) []lifecycle.Pending {
	var found []lifecycle.Pending
	for _, wanted := range due {
		if len(found) == len(batch) {
			break
		}
		next, o := batch[len(found)], wanted.Operation
		if o.Volume == next.Volume && o.Kind == next.Kind && o.Path == next.Path {
			found = append(found, wanted)
		}
	}
	return found
}

// confirm decides once more about the claims whose operations were chosen. What others have done with
// the same directory since may have changed an operation, or made it unnecessary.
func (c *Controller) confirm(chosen []lifecycle.Pending) []lifecycle.Pending {
	var confirmed []lifecycle.Pending
	for _, before := range chosen {
		state, plan := c.gatherer.Decide(before.Claim)
		for _, wanted := range plan.Pending {
			if isSame(before, wanted) && !wanted.Due.After(state.Now) {
				confirmed = append(confirmed, wanted)
			}
		}
	}
	return confirmed
}

func isSame(a, b lifecycle.Pending) bool {
	return a.FileSystemID == b.FileSystemID && a.Operation.Volume == b.Operation.Volume &&
		a.Operation.Kind == b.Operation.Kind && a.Operation.Adopt == b.Operation.Adopt
}

// seal reads live whatever a batch would take away. Of its operations, those stay that are still
// right; owners that only the ledger remembers are released with them.
func (c *Controller) confirmLive(ctx context.Context, batch []lifecycle.Pending) ([]operations.Operation, error) {
	now, err := c.readLive(ctx, batch)
	if err != nil {
		return nil, err
	}
	var ops []operations.Operation
	for _, wanted := range batch {
		if wanted.Operation.Kind != operations.Cleanup {
			ops = append(ops, wanted.Operation)
			continue
		}
		if !now.wantsCleanup(wanted.Operation, c.gatherer.Provisioner) {
			continue
		}
		ops = append(ops, c.withReleases(now, wanted)...)
	}
	return ops, nil
}

func (c *Controller) readLive(ctx context.Context, batch []lifecycle.Pending) (liveObjects, error) {
	var names []string
	owners := map[types.NamespacedName]bool{}
	for _, wanted := range batch {
		if wanted.Operation.Kind != operations.Cleanup {
			continue
		}
		names = append(names, wanted.Operation.Volume)
		for _, blocker := range wanted.Blockers {
			names = append(names, blocker.Volume)
			owners[types.NamespacedName{Namespace: blocker.Namespace, Name: blocker.Claim}] = true
		}
	}
	if len(names) == 0 {
		return liveObjects{}, nil
	}
	slices.Sort(names)
	objects, err := c.live.Volumes(ctx, slices.Compact(names))
	if err != nil {
		return liveObjects{}, err
	}
	for _, object := range objects {
		if ref := object.Spec.ClaimRef; ref != nil {
			owners[types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}] = true
		}
	}
	var wanted []types.NamespacedName
	for owner := range owners {
		if owner.Name != "" && owner.Namespace != "" {
			wanted = append(wanted, owner)
		}
	}
	claims, err := c.live.Claims(ctx, wanted)
	return liveObjects{objects, claims}, err
}

// wantsCleanup says whether an operation is still right for the volume as it is now.
func (l liveObjects) wantsCleanup(o operations.Operation, provisioner string) bool {
	object := l.volumes[o.Volume]
	if object == nil || object.Spec.ClaimRef == nil {
		return false
	}
	ref := object.Spec.ClaimRef
	claim := l.claims[types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}]
	volume := volumes.Read(object, provisioner)
	return volume.NeedsCleanup(claim) && volume.Path == o.Path && string(volume.ClaimUID) == o.ClaimUID
}

// unblock deals with the owners that an earlier cleanup met. One that exists nowhere but in the
// ledger is released in the same batch; one that lives has the directory from now on.
func (c *Controller) withReleases(now liveObjects, wanted lifecycle.Pending) []operations.Operation {
	cleanup := wanted.Operation
	var ops []operations.Operation
	for _, owner := range wanted.Blockers {
		if owner.Cluster != cleanup.Cluster {
			continue
		}
		if c.exists(now, owner) {
			cleanup.LeaveToOthers = true
			continue
		}
		ops = append(ops, operations.Operation{Kind: operations.Release, Owner: owner, Path: cleanup.Path})
	}
	return append(ops, cleanup)
}

// lives says that an owner in the ledger is still somebody: it has a volume or a claim, or a
// volume is being made for it.
func (c *Controller) exists(now liveObjects, owner operations.Owner) bool {
	if now.volumes[owner.Volume] != nil {
		return true
	}
	claim := now.claims[types.NamespacedName{Namespace: owner.Namespace, Name: owner.Claim}]
	if claim != nil && (owner.ClaimUID == "" || string(claim.UID) == owner.ClaimUID) {
		return true
	}
	return slices.ContainsFunc(c.gatherer.Attempts(owner.Volume), func(a lifecycle.Attempt) bool { return a.Unused })
}
