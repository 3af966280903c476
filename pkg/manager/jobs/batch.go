package jobs

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// batch chooses the operations of the next Job first, and reads live what concerns those: reading
// all that are pending would cost as much for each Job as for all of them together.
func (c *Controller) batch(ctx context.Context, due []decide.Pending) ([]operations.Operation, error) {
	ops, err := c.confirmLive(ctx, c.confirm(c.choose(due)))
	if err == nil {
		ops, err = c.withNamespaceUIDs(ctx, ops)
	}
	if err != nil {
		return nil, err
	}
	return c.pack(ops).Batch, nil // with owners to release, and with uids, they may be too many
}

func (c *Controller) choose(due []decide.Pending) []decide.Pending {
	ops := make([]operations.Operation, len(due))
	for i, pending := range due {
		ops[i] = pending.Operation
	}
	packed := c.pack(ops)
	for _, unfit := range packed.Unfit {
		i := slices.IndexFunc(due, func(p decide.Pending) bool { return p.Operation.Volume == unfit.Operation.Volume })
		c.gatherer.Unindex(due[i].Claim)
	}
	return packedOf(due, packed.Batch)
}

func (c *Controller) pack(ops []operations.Operation) mountjobs.Packed {
	packed := mountjobs.Pack(ops, c.options.Batch)
	for _, unfit := range packed.Unfit {
		c.report(report{operation: unfit.Operation, message: "the operation cannot be sent to a mount Job: " + unfit.Err.Error()})
	}
	return packed
}

// packedOf finds, among the operations that are due, those that a batch was packed of. The batch has
// their order.
func packedOf(due []decide.Pending, batch []operations.Operation) []decide.Pending {
	var found []decide.Pending
	for _, pending := range due {
		o, n := pending.Operation, len(found)
		if n < len(batch) && o.Volume == batch[n].Volume && o.Kind == batch[n].Kind && o.Path == batch[n].Path {
			found = append(found, pending)
		}
	}
	return found
}

// confirm decides once more about the claims whose operations were chosen. What others have done with
// the same directory since may have changed an operation, or made it unnecessary.
func (c *Controller) confirm(chosen []decide.Pending) []decide.Pending {
	var confirmed []decide.Pending
	for _, before := range chosen {
		state, plan := c.gatherer.Decide(before.Claim)
		for _, pending := range plan.Pending {
			if isSame(before, pending) && !pending.Due.After(state.Now) {
				confirmed = append(confirmed, pending)
			}
		}
	}
	return confirmed
}

func isSame(a, b decide.Pending) bool {
	return a.FileSystemID == b.FileSystemID && a.Operation.Volume == b.Operation.Volume &&
		a.Operation.Kind == b.Operation.Kind && a.Operation.Adopt == b.Operation.Adopt
}

// confirmLive drops cleanups that are no longer right for the volumes as they are read live. Owners
// that exist nowhere but in the ledger are released together with the cleanups that they block.
func (c *Controller) confirmLive(ctx context.Context, batch []decide.Pending) ([]operations.Operation, error) {
	now, err := c.readLive(ctx, batch)
	if err != nil {
		return nil, err
	}
	var ops []operations.Operation
	for _, pending := range batch {
		switch {
		case pending.Operation.Kind != operations.Cleanup:
			ops = append(ops, pending.Operation)
		case now.needsCleanup(pending.Operation, c.gatherer.Provisioner):
			ops = append(ops, c.withReleases(now, pending)...)
		}
	}
	return ops, nil
}

// withReleases deals with the owners that an earlier cleanup met. One that exists nowhere but in the
// ledger is released in the same batch; to any other, the directory is left.
func (c *Controller) withReleases(now liveObjects, pending decide.Pending) []operations.Operation {
	cleanup := pending.Operation
	var ops []operations.Operation
	for _, owner := range pending.Blockers {
		switch {
		case owner.Cluster != cleanup.Cluster:
		case c.exists(now, owner):
			cleanup.LeaveToOthers = true
		default:
			ops = append(ops, operations.Operation{Kind: operations.Release, Owner: owner, Path: cleanup.Path})
		}
	}
	return append(ops, cleanup)
}

// exists says that an owner in the ledger has a volume or a claim, or that a volume is being made for
// it.
func (c *Controller) exists(now liveObjects, owner operations.Owner) bool {
	if now.volumes[owner.Volume] != nil {
		return true
	}
	claim := now.claims[types.NamespacedName{Namespace: owner.Namespace, Name: owner.Claim}]
	if claim != nil && (owner.ClaimUID == "" || string(claim.UID) == owner.ClaimUID) {
		return true
	}
	return slices.ContainsFunc(c.gatherer.Attempts(owner.Volume), func(a decide.Attempt) bool { return a.Unused })
}

// withNamespaceUIDs writes into operations that enter an owner the uid of its namespace, read live: a
// cached one could be that of an earlier namespace of the same name, whose data is not for this one.
//
//	namespace  its claim   what becomes of the operation
//	exists     exists      sent with the uid
//	deleted    exists      left out: the cache is behind, and the claim is deleted too
//	any        deleted     sent as it was begun: what was begun is finished
func (c *Controller) withNamespaceUIDs(ctx context.Context, ops []operations.Operation) ([]operations.Operation, error) {
	entersOwner := func(o operations.Operation) bool { return o.AddsOwner() && c.claimOf(o) != nil }
	var names []string
	for _, o := range ops {
		if entersOwner(o) {
			names = append(names, o.Namespace)
		}
	}
	slices.Sort(names)
	namespaces, err := c.live.Namespaces(ctx, slices.Compact(names))
	if err != nil {
		return nil, err
	}
	var confirmed []operations.Operation
	for _, o := range ops {
		if entersOwner(o) {
			namespace := namespaces[o.Namespace]
			if namespace == nil {
				continue
			}
			o.NamespaceUID = string(namespace.UID)
		}
		confirmed = append(confirmed, o)
	}
	return confirmed, nil
}
