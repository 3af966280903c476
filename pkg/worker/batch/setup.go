package batch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/ledger"
)

// setup makes the operation's volume an owner of its path, and the path a directory.
//
//	owner entry  directory   what is done
//	none         none        entry, directory
//	none         there       entry; the directory stays as it is
//	own          none        directory (after a run that died, or a removal by hand)
//	own          there       nothing
func (b *Batch) setup(ctx context.Context, op operations.Operation) (Outcome, error) {
	found, err := b.Occupancy(ctx, op)
	if err != nil {
		return Outcome{}, err
	}
	if err := b.checkSetup(ctx, op, found); err != nil {
		return Outcome{}, err
	}
	if err := b.give(ctx, op, &found); err != nil {
		return Outcome{}, err
	}
	gid, err := b.gidFor(ctx, op, found)
	if err != nil {
		return Outcome{}, err
	}
	e, err := b.Enter(ctx, op, found, gid)
	if err != nil {
		return Outcome{}, err
	}
	action := Recorded
	if found.Info == nil {
		action = Created
		if err := b.makeVolume(ctx, op, gid); err != nil {
			return Outcome{}, b.Withdraw(ctx, op, found, e, err)
		}
	}
	return DoneBy(action, operations.Result{GID: gid}), nil
}

func (b *Batch) checkSetup(ctx context.Context, op operations.Operation, found ledger.Occupancy) error {
	if err := b.checkNesting(ctx, op); err != nil {
		return err
	}
	if op.Reads && !op.Adopt {
		return checkReader(op, found)
	}
	if err := b.checkOwners(op, found); err != nil {
		return err
	}
	switch {
	case op.Adopt && op.Reads && found.Own == nil:
		return fsroot.Refuse(operations.NotFound, "%s is not read by the volume, as the ledger has it, so there is nothing to take over", fsroot.Quote(op.Path))
	case op.Adopt && found.Info == nil:
		return fsroot.Refuse(operations.NotFound, "%s is not there, so it cannot be taken over as it is", fsroot.Quote(op.Path))
	case op.Adopt || found.Info == nil || found.Own != nil || len(found.All()) > 0 || !op.RefuseExisting:
		return nil
	}
	return b.checkEmpty(ctx, op.Path)
}

// checkOwners compares the volume with the owners of its path. One that is taken over shares it already.
func (b *Batch) checkOwners(op operations.Operation, found ledger.Occupancy) error {
	if op.TakeOver != "" {
		if taken, err := checkTakeover(op, found); taken || err != nil {
			return err
		}
	}
	// Adopted volumes have any name; a cluster gives it anew only when the old volume is gone.
	if found.Own != nil && (!op.Adopt || found.Own.Cluster != op.Cluster) {
		if err := checkName(op, found.Own); err != nil {
			return err
		}
	}
	for _, other := range found.All() {
		if err := b.checkSharing(op, other); err != nil {
			return err
		}
	}
	return nil
}

// CheckUnshared refuses a path that is not the operation's volume's alone. The others are those that count.
func (b *Batch) CheckUnshared(ctx context.Context, op operations.Operation, found ledger.Occupancy, others []*ledger.Entry, advice string) error {
	if err := b.checkNesting(ctx, op); err != nil {
		return err
	}
	if found.Own != nil {
		if err := checkName(op, found.Own); err != nil {
			return err
		}
	}
	if len(others) > 0 {
		return fsroot.Refuse(operations.PathTaken, "%s %s: %s", fsroot.Quote(op.Path), others[0].Relation(), advice).Of(others[0].Owner())
	}
	return nil
}

func (b *Batch) checkNesting(ctx context.Context, op operations.Operation) error {
	at, e, err := b.Ledger.Above(ctx, op.Path)
	if err == nil && e == nil {
		at, e, err = b.Ledger.Below(ctx, op.Path)
	}
	if err != nil || e == nil {
		return err
	}
	return fsroot.Refuse(operations.Nested, "%s and %s, which %s, would be one inside the other: choose a path that is neither above nor below", fsroot.Quote(op.Path), fsroot.Quote(at), e.Relation()).Of(e.Owner())
}

// checkName refuses a volume whose name another claim's volume has in the ledger.
func checkName(op operations.Operation, own *ledger.Entry) error {
	if own.IsOf(op.Owner) {
		return nil
	}
	return fsroot.Refuse(operations.VolumeNameTaken, "%s is in the ledger as %s: rename this volume, or release that one", fsroot.Quote(op.Path), own).Of(own.Owner())
}

// checkSharing also counts owners that leave, and retained data: their data is still there. Owners of
// several classes may share within their namespace, but what no volume in use has any more goes to
// claims of its own class only.
func (b *Batch) checkSharing(op operations.Operation, other *ledger.Entry) error {
	reason, message := operations.Reason(""), ""
	switch {
	case other.Cluster != op.Cluster && !op.ShareAcrossClusters && !(op.TakeOver == other.Cluster && other.State == ledger.StateRetained):
		reason, message = operations.OwnedByOtherCluster, "choose another name, or set share_across_clusters in the class if both shall use it"
	case op.ShareAcrossNamespaces:
	case other.Namespace != op.Namespace:
		reason, message = operations.OwnedByOtherNamespace, "choose another name, or set share_across_namespaces in the class if both shall use it"
	case other.IsOfEarlierNamespace(op.Owner):
		reason, message = operations.OwnedByOtherNamespace, Recreated(op.Namespace)
	case b.isRemembered(op, other) && other.Class != "" && op.Class != "" && other.Class != op.Class:
		reason, message = operations.OwnedByOtherClass, fmt.Sprintf("its class was %s: use that class, choose another name, or set share_across_namespaces in the class if it shall have such data", fsroot.Quote(other.Class))
	}
	if reason == "" {
		return nil
	}
	return fsroot.Refuse(reason, "%s %s: %s", fsroot.Quote(op.Path), other.Relation(), message).Of(other.Owner())
}

// isRemembered reports that no volume in use has an entry's data, as far as the manager knows. It knows
// its own cluster, and nothing yet of what the same batch sets up.
func (b *Batch) isRemembered(op operations.Operation, other *ledger.Entry) bool {
	return other.State == ledger.StateRetained || other.Cluster == op.Cluster && !op.Joins && !b.newOwners[other.Volume]
}

// Recreated explains that a namespace of the same name is another one.
func Recreated(namespace string) string {
	return fmt.Sprintf(`namespace %s was deleted and made again since: choose another name, or set share_across_namespaces: "true" in the class if claims of the new namespace shall have the data of the old one`, fsroot.Quote(namespace))
}

func (b *Batch) checkEmpty(ctx context.Context, p string) error {
	d, err := b.Data.Dir(ctx, p)
	if err != nil {
		return err
	}
	empty, err := d.IsEmpty()
	if err != nil || empty {
		return err
	}
	return fsroot.Refuse(operations.NotEmptyUnowned, "%s has content and no owner, and the class has adopt_existing \"false\": choose another name, move the content away, or allow it in the class", fsroot.Quote(p))
}

// Enter writes the entry of the operation's volume, unless it is as wanted.
func (b *Batch) Enter(ctx context.Context, op operations.Operation, found ledger.Occupancy, gid int) (*ledger.Entry, error) {
	own := found.Own
	if own != nil && !own.IsOf(op.Owner) && !own.IsTakenBy(op) { // checkSetup found that its volume is gone
		if err := b.Ledger.SetState(ctx, op.Path, own, ledger.StateRetained); err != nil {
			return nil, err
		}
		own = nil
	}
	now, err := b.system.ServerNow(ctx)
	if err != nil {
		return nil, err
	}
	e := ledger.NewEntry(op.Owner, now)
	e.GID, e.Size = gid, op.Size
	e.Made, e.Found = mayRemove(op, found.Info == nil, own), found.Info != nil
	if op.TakeOver != op.Cluster {
		e.TakenFrom = op.TakeOver
	}
	if own != nil {
		e.Unknown = own.Unknown
		e.RestoredFrom = own.RestoredFrom
		e.Size = cmp.Or(e.Size, own.Size)
		if own.Cluster == op.Cluster { // not that from which the entry's cluster has taken it
			e.TakenFrom = cmp.Or(own.TakenFrom, e.TakenFrom)
		}
		e.NamespaceUID = cmp.Or(e.NamespaceUID, own.NamespaceUID)
		e.Class = cmp.Or(e.Class, own.Class)
		if own.State != ledger.StateLeaving && own.IsOf(op.Owner) { // one that leaves and returns is a new incarnation
			e.When, e.Found = own.When, own.Found
		}
	}
	belongTo(e, op, found)
	if !reflect.DeepEqual(own, e) {
		if err := b.Ledger.Write(ctx, op.Path, e); err != nil {
			return nil, err
		}
	}
	return e, b.cancelCleanup(ctx, op, found)
}

func (b *Batch) cancelCleanup(ctx context.Context, op operations.Operation, found ledger.Occupancy) error {
	if found.Leaving == nil || found.Leaving.State != ledger.StateLeaving {
		return nil
	}
	return b.Ledger.Drop(ctx, op.Path, found.Leaving)
}

// Withdraw drops the new entry when the directory was refused: no other volume must be kept from a path where nothing
// is. A run that was stopped, or has no answer, leaves it: the directory may be there, and would have no owner.
func (b *Batch) Withdraw(ctx context.Context, op operations.Operation, found ledger.Occupancy, e *ledger.Entry, cause error) error {
	if found.Own != nil || !fsroot.ChangedNothing(cause) {
		return cause
	}
	return errors.Join(cause, b.Ledger.Drop(ctx, op.Path, e))
}

// gidFor is the group that a setup reports: the directory's own, if it has one.
func (b *Batch) gidFor(ctx context.Context, op operations.Operation, found ledger.Occupancy) (int, error) {
	if gid := found.Gid(); gid != 0 {
		return gid, nil
	}
	if !op.AllocateGID {
		return 0, nil
	}
	if found.Info == nil {
		return b.gids.Allocate(ctx, op)
	}
	return b.gids.Adopt(ctx, fsroot.GroupOf(found.Info), op) // a directory that exists keeps its group
}

// give enters the claim and the namespace that the volume has now, for which an administrator may have reserved it
// since. What its pods wrote is that claim's, also in the trash and as retained data.
func (b *Batch) give(ctx context.Context, op operations.Operation, found *ledger.Occupancy) (err error) {
	if found.Own != nil {
		found.Own, err = b.giveEntry(ctx, op, found.Own)
	}
	for i, mark := range found.Retained {
		if err == nil {
			found.Retained[i], err = b.giveEntry(ctx, op, mark)
		}
	}
	return err
}

func (b *Batch) giveEntry(ctx context.Context, op operations.Operation, e *ledger.Entry) (*ledger.Entry, error) {
	isSame := e.Namespace == op.Namespace && (op.NamespaceUID == "" || e.NamespaceUID == "" || e.NamespaceUID == op.NamespaceUID)
	if !e.IsOf(op.Owner) || isSame || op.Namespace == "" || e.Reads {
		return e, nil
	}
	given := *e
	given.Namespace, given.NamespaceUID, given.Claim = op.Namespace, op.NamespaceUID, op.Claim
	return &given, b.Ledger.Write(ctx, op.Path, &given)
}

// checkTakeover reports whether the volume owns its path in the ledger, so that its entry only changes hands.
//
//	entry of the volume        its file    what is done
//	of the lost cluster        owner       written anew, in one rename
//	of this cluster            owner       nothing, or what was begun
//	of either                  .leaving    refused: its cleanup has begun
//	of the lost cluster        .retained   a new owner beside the mark, without the right to remove
//	none                       -           refused: there is nothing to take over
func checkTakeover(op operations.Operation, found ledger.Occupancy) (taken bool, err error) {
	own := found.Own
	switch {
	case own != nil && !own.IsOf(op.Owner) && !own.IsTakenBy(op):
		return false, checkName(op, own)
	case own != nil && own.State == ledger.StateLeaving:
		return false, fsroot.Refuse(operations.NotOwned, "%s is not taken over: the cleanup of %s has begun", fsroot.Quote(op.Path), own).Of(own.Owner())
	case own != nil:
		return true, nil
	case slices.ContainsFunc(found.Retained, func(e *ledger.Entry) bool { return e.IsTakenBy(op) }):
		return false, nil
	}
	return false, fsroot.Refuse(operations.NotOwned, "%s is not taken over: the ledger does not have volume %s of cluster %s there",
		fsroot.Quote(op.Path), fsroot.Quote(op.Volume), fsroot.Quote(op.TakeOver))
}

// mayRemove reports the new entry's right to remove the directory. A takeover gives none that the lost cluster lacked.
func mayRemove(op operations.Operation, isNew bool, own *ledger.Entry) bool {
	if op.TakeOver == "" {
		return isNew || op.Adopt && op.Made || own != nil && own.Made
	}
	return own != nil && own.Made && (op.Made || own.IsOf(op.Owner))
}
