package directories

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// setup makes the operation's volume an owner of its path, and the path a directory.
//
//	owner entry  directory   what is done
//	none         none        entry, directory
//	none         there       entry; the directory stays as it is
//	own          none        directory (after a run that died, or a removal by hand)
//	own          there       nothing
func (b *batch) setup(ctx context.Context, op operations.Operation) (outcome, error) {
	found, err := b.occupancy(ctx, op)
	if err != nil {
		return outcome{}, err
	}
	if err := b.checkSetup(ctx, op, found); err != nil {
		return outcome{}, err
	}
	if err := b.give(ctx, op, &found); err != nil {
		return outcome{}, err
	}
	gid, err := b.gidFor(ctx, op, found)
	if err != nil {
		return outcome{}, err
	}
	e, err := b.enter(ctx, op, found, gid)
	if err != nil {
		return outcome{}, err
	}
	action := Recorded
	if found.info == nil {
		action = Created
		if err := b.makeVolume(ctx, op, gid); err != nil {
			return outcome{}, b.withdraw(ctx, op, found, e, err)
		}
	}
	return doneBy(action, operations.Result{GID: gid}), nil
}

// checkSetup refuses paths that the volume must not have.
func (b *batch) checkSetup(ctx context.Context, op operations.Operation, found occupancy) error {
	if err := b.checkNesting(ctx, op); err != nil {
		return err
	}
	if err := b.checkOwners(op, found); err != nil {
		return err
	}
	switch {
	case op.Adopt && found.info == nil:
		return refuse(operations.NotFound, "%s is not there, so it cannot be taken over as it is", quote(op.Path))
	case op.Adopt || found.info == nil || found.own != nil || len(found.all()) > 0 || !op.RefuseExisting:
		return nil
	}
	return b.checkEmpty(ctx, op.Path)
}

// checkOwners compares the volume with the owners of its path. One that is taken over shares it with the
// others already.
func (b *batch) checkOwners(op operations.Operation, found occupancy) error {
	if op.TakeOver != "" {
		if taken, err := checkTakeover(op, found); taken || err != nil {
			return err
		}
	}
	// Adopted volumes have any name; a cluster gives it anew only when the old volume is gone.
	if found.own != nil && (!op.Adopt || found.own.Cluster != op.Cluster) {
		if err := checkName(op, found.own); err != nil {
			return err
		}
	}
	for _, other := range found.all() {
		if err := b.checkSharing(op, other); err != nil {
			return err
		}
	}
	return nil
}

func (b *batch) checkNesting(ctx context.Context, op operations.Operation) error {
	at, e, err := b.ledger.above(ctx, op.Path)
	if err == nil && e == nil {
		at, e, err = b.ledger.below(ctx, op.Path)
	}
	if err != nil || e == nil {
		return err
	}
	return refuse(operations.Nested, "%s and %s, which %s, would be one inside the other: choose a path that is neither above nor below", quote(op.Path), quote(at), e.relation()).of(e.owner())
}

// checkName refuses a volume whose name another claim's volume has in the ledger.
func checkName(op operations.Operation, own *entry) error {
	if own.isOf(op.Owner) {
		return nil
	}
	return refuse(operations.VolumeNameTaken, "%s is in the ledger as %s: rename this volume, or release that one", quote(op.Path), own).of(own.owner())
}

// checkSharing also counts owners that leave, and retained data: their data is still there. Owners of
// several classes may share within their namespace, but what no volume in use has any more goes to
// claims of its own class only.
func (b *batch) checkSharing(op operations.Operation, other *entry) error {
	reason, message := operations.Reason(""), ""
	switch {
	case other.Cluster != op.Cluster && !op.ShareAcrossClusters && !(op.TakeOver == other.Cluster && other.state == stateRetained):
		reason, message = operations.OwnedByOtherCluster, "choose another name, or set share_across_clusters in the class if both shall use it"
	case op.ShareAcrossNamespaces:
	case other.Namespace != op.Namespace:
		reason, message = operations.OwnedByOtherNamespace, "choose another name, or set share_across_namespaces in the class if both shall use it"
	case other.isOfEarlierNamespace(op.Owner):
		reason, message = operations.OwnedByOtherNamespace, recreated(op.Namespace)
	case b.isRemembered(op, other) && other.Class != "" && op.Class != "" && other.Class != op.Class:
		reason, message = operations.OwnedByOtherClass, fmt.Sprintf("its class was %s: use that class, choose another name, or set share_across_namespaces in the class if it shall have such data", quote(other.Class))
	}
	if reason == "" {
		return nil
	}
	return refuse(reason, "%s %s: %s", quote(op.Path), other.relation(), message).of(other.owner())
}

// isRemembered reports that no volume in use has an entry's data, as far as the manager knows. It knows
// its own cluster, and nothing yet of what the same batch sets up.
func (b *batch) isRemembered(op operations.Operation, other *entry) bool {
	return other.state == stateRetained || other.Cluster == op.Cluster && !op.Joins && !b.newOwners[other.volume]
}

func recreated(namespace string) string {
	return fmt.Sprintf(`namespace %s was deleted and made again since: choose another name, or set share_across_namespaces: "true" in the class if claims of the new namespace shall have the data of the old one`, quote(namespace))
}

func (b *batch) checkEmpty(ctx context.Context, p string) error {
	d, err := b.data.dir(ctx, p)
	if err != nil {
		return err
	}
	empty, err := d.isEmpty()
	if err != nil || empty {
		return err
	}
	return refuse(operations.NotEmptyUnowned, "%s has content and no owner, and the class has adopt_existing \"false\": choose another name, move the content away, or allow it in the class", quote(p))
}

// enter writes the entry of the operation's volume, unless it is as wanted.
func (b *batch) enter(ctx context.Context, op operations.Operation, found occupancy, gid int) (*entry, error) {
	own := found.own
	if own != nil && !own.isOf(op.Owner) && !own.isTakenBy(op) { // checkSetup found that its volume is gone
		if err := b.ledger.setState(ctx, op.Path, own, stateRetained); err != nil {
			return nil, err
		}
		own = nil
	}
	now, err := b.fs.serverNow(ctx)
	if err != nil {
		return nil, err
	}
	e := newEntry(op.Owner, now)
	e.GID = gid
	e.Made, e.Found = mayRemove(op, found.info == nil, own), found.info != nil
	if op.TakeOver != op.Cluster {
		e.TakenFrom = op.TakeOver
	}
	if own != nil {
		e.unknown = own.unknown
		e.RestoredFrom = own.RestoredFrom
		if own.Cluster == op.Cluster { // not that from which the entry's cluster has taken it
			e.TakenFrom = cmp.Or(own.TakenFrom, e.TakenFrom)
		}
		e.NamespaceUID = cmp.Or(e.NamespaceUID, own.NamespaceUID)
		e.Class = cmp.Or(e.Class, own.Class)
		if own.state != stateLeaving && own.isOf(op.Owner) { // one that leaves and returns is a new incarnation
			e.When, e.Found = own.When, own.Found
		}
	}
	if !reflect.DeepEqual(own, e) {
		if err := b.ledger.write(ctx, op.Path, e); err != nil {
			return nil, err
		}
	}
	return e, b.cancelCleanup(ctx, op, found)
}

// cancelCleanup drops the entry of a cleanup that has begun.
func (b *batch) cancelCleanup(ctx context.Context, op operations.Operation, found occupancy) error {
	if found.leaving == nil || found.leaving.state != stateLeaving {
		return nil
	}
	return b.ledger.drop(ctx, op.Path, found.leaving)
}

// withdraw drops the new entry when the directory was refused, so that it keeps no other volume from a
// path where nothing is. A run that was stopped leaves it to the next one, and so does one whose
// rename has no answer: the directory may be there, and would have no owner.
func (b *batch) withdraw(ctx context.Context, op operations.Operation, found occupancy, e *entry, cause error) error {
	if found.own != nil || !changedNothing(cause) {
		return cause
	}
	return errors.Join(cause, b.ledger.drop(ctx, op.Path, e))
}

// gidFor is the group that a setup reports: the directory's own, if it has one.
func (b *batch) gidFor(ctx context.Context, op operations.Operation, found occupancy) (int, error) {
	if gid := found.gid(); gid != 0 {
		return gid, nil
	}
	if !op.AllocateGID {
		return 0, nil
	}
	if found.info == nil {
		return b.gids.allocate(ctx, op)
	}
	// A directory that exists keeps its group, and it is worth reporting only if it looks like
	// an allocated one.
	gid := groupOf(found.info)
	if !rangeOf(op).has(gid) {
		return 0, nil
	}
	return gid, b.gids.adopt(ctx, gid, op)
}
