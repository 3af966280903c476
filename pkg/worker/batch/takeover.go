package batch

import (
	"slices"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/ledger"
)

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
		return false, CheckName(op, own)
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

// mayRemove is whether the new entry has the right to remove the directory. A takeover gives no right that
// the entry of the lost cluster does not have.
func mayRemove(op operations.Operation, isNew bool, own *ledger.Entry) bool {
	switch {
	case op.TakeOver == "":
		return isNew || op.Adopt && op.Made || own != nil && own.Made
	case own == nil:
		return false
	}
	return own.Made && (op.Made || own.IsOf(op.Owner))
}
