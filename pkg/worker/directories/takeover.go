package directories

import (
	"slices"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// checkTakeover reports whether the volume owns its path in the ledger, so that its entry only changes hands.
//
//	entry of the volume        its file    what is done
//	of the lost cluster        owner       written anew, in one rename
//	of this cluster            owner       nothing, or what was begun
//	of either                  .leaving    refused: its cleanup has begun
//	of the lost cluster        .retained   a new owner beside the mark, without the right to remove
//	none                       -           refused: there is nothing to take over
func checkTakeover(op operations.Operation, found occupancy) (taken bool, err error) {
	own := found.own
	switch {
	case own != nil && !own.isOf(op.Owner) && !own.isTakenBy(op):
		return false, checkName(op, own)
	case own != nil && own.state == stateLeaving:
		return false, refuse(operations.NotOwned, "%s is not taken over: the cleanup of %s has begun", quote(op.Path), own).of(own.owner())
	case own != nil:
		return true, nil
	case slices.ContainsFunc(found.retained, func(e *entry) bool { return e.isTakenBy(op) }):
		return false, nil
	}
	return false, refuse(operations.NotOwned, "%s is not taken over: the ledger does not have volume %s of cluster %s there",
		quote(op.Path), quote(op.Volume), quote(op.TakeOver))
}

// mayRemove is whether the new entry has the right to remove the directory. A takeover gives no right that
// the entry of the lost cluster does not have.
func mayRemove(op operations.Operation, isNew bool, own *entry) bool {
	switch {
	case op.TakeOver == "":
		return isNew || op.Adopt && op.Made || own != nil && own.Made
	case own == nil:
		return false
	}
	return own.Made && (op.Made || own.isOf(op.Owner))
}
