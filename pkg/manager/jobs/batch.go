package jobs

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/volumes"
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
	return c.packAll(ops), nil
}

// packAll leaves out what is too large with uids and owners to release, whatever their number: without the cleanup that
// they are in the way of, owners would be released again and again.
func (c *Controller) packAll(ops []operations.Operation) []operations.Operation {
	return pack(c, ops, func(o operations.Operation) operations.Operation { return o }, len(ops)).Batch
}

func (c *Controller) choose(due []decide.Pending) []decide.Pending {
	packed := pack(c, due, func(p decide.Pending) operations.Operation { return p.Operation }, c.options.Batch)
	for _, unfit := range packed.Unfit {
		c.gatherer.Unindex(unfit.Item.Claim)
	}
	return packed.Batch
}

func pack[T any](c *Controller, all []T, operationOf func(T) operations.Operation, most int) mountjobs.Packed[T] {
	packed := mountjobs.Pack(all, operationOf, most)
	for _, unfit := range packed.Unfit {
		c.report(report{operation: operationOf(unfit.Item), message: "the operation cannot be sent to a mount Job: " + unfit.Err.Error()})
	}
	return packed
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

// exists says that an owner in the ledger has a volume or a claim, or that a volume is being made for it.
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
	names := sets.New[string]()
	for _, o := range ops {
		if entersOwner(o) {
			names.Insert(o.Namespace)
		}
	}
	namespaces, err := c.live.Namespaces(ctx, sets.List(names))
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

// liveObjects are the volumes and claims that a batch with cleanups is about, as the apiserver has them.
type liveObjects struct {
	volumes map[string]*corev1.PersistentVolume
	claims  map[types.NamespacedName]*corev1.PersistentVolumeClaim
}

// readLive reads what a batch is about as it is now or later.
func (c *Controller) readLive(ctx context.Context, batch []decide.Pending) (now liveObjects, err error) {
	names, owners := sets.New[string](), sets.New[types.NamespacedName]()
	addOwner := func(namespace, claim string) {
		if namespace != "" && claim != "" {
			owners.Insert(types.NamespacedName{Namespace: namespace, Name: claim})
		}
	}
	for _, pending := range batch {
		if pending.Operation.Kind != operations.Cleanup {
			continue
		}
		names.Insert(pending.Operation.Volume)
		for _, blocker := range pending.Blockers {
			names.Insert(blocker.Volume)
			addOwner(blocker.Namespace, blocker.Claim)
		}
	}
	known := c.gatherer.Caches
	if now.volumes, err = known.VolumesNow(ctx, c.live, sets.List(names)); err != nil {
		return now, err
	}
	for _, object := range now.volumes {
		if ref := object.Spec.ClaimRef; ref != nil {
			addOwner(ref.Namespace, ref.Name)
		}
	}
	now.claims, err = known.ClaimsNow(ctx, c.live, owners.UnsortedList())
	return now, err
}

func (l liveObjects) needsCleanup(o operations.Operation, provisioner string) bool {
	object := l.volumes[o.Volume]
	if object == nil || object.Spec.ClaimRef == nil {
		return false
	}
	claim := l.claims[types.NamespacedName{Namespace: object.Spec.ClaimRef.Namespace, Name: object.Spec.ClaimRef.Name}]
	volume := volumes.Read(object, provisioner)
	return volume.NeedsCleanup(claim) && volume.Path == o.Path && string(volume.ClaimUID) == o.ClaimUID
}

// paces bound how often the worker of a file system gets a batch. Each batch is a write of the Job, and what
// follows from its operations are more writes, at the rate that the apiserver allows: operations that
// come meanwhile had better go together, and wait for nothing that way. One now and then goes at once.
type paces struct {
	given    sync.Map // of time.Time, of the newest batch, by file system; as many as there were
	complete sync.Map // of time.Time, when the next one is collected, by file system
}

// For each operation that was done and has no volume yet, or still has one, the next batch is collected for
// collectForEach, at most for mostCollect and until it has fullBatch operations. A few at once then wait
// for less than a person notices; in a burst so many come together that one request replaces the reads of
// their objects (objects.ManyObjects, caches.IsCurrent).
const (
	collectForEach = 50 * time.Millisecond
	mostCollect    = time.Second
	fullBatch      = 256
)

// wait is how long the next batch of a file system, which would have due operations, has to wait.
func (p *paces) wait(fileSystemID string, unused, due int) time.Duration {
	value, _ := p.given.Load(fileSystemID)
	given, ok := value.(time.Time)
	if !ok || due >= fullBatch {
		return 0
	}
	return max(min(time.Duration(unused)*collectForEach, mostCollect)-time.Since(given), 0)
}

// collect has the operations that come until then looked at together.
func (p *paces) collect(fileSystemID string, wait time.Duration) {
	p.complete.Store(fileSystemID, time.Now().Add(wait))
}

// longLookDelay is how late it is seen that a batch is full before its time.
const longLookDelay = 200 * time.Millisecond

// lookDelay is how soon operations of a file system that have come are looked at. Each look at a worker's Job
// is at all its operations.
func (p *paces) lookDelay(fileSystemID string) time.Duration {
	value, _ := p.complete.Load(fileSystemID)
	complete, _ := value.(time.Time)
	return min(max(time.Until(complete), enqueueDelay), longLookDelay)
}

func (p *paces) begin(fileSystemID string) {
	p.given.Store(fileSystemID, time.Now())
	p.complete.Delete(fileSystemID)
}
