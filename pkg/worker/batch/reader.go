package batch

import (
	"slices"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/ledger"
)

// ownerRead returns the entry of the owner, who is no reader, of the directory to be read; nil is none.
func ownerRead(op operations.Operation, found ledger.Occupancy) *ledger.Entry {
	i := slices.IndexFunc(found.Others, func(e *ledger.Entry) bool {
		isNamed := e.Volume == op.SourceVolume && e.ClaimUID == op.SourceClaimUID && e.Cluster == op.Cluster
		return isNamed && !e.Reads && e.State != ledger.StateLeaving
	})
	if i < 0 {
		return nil
	}
	return found.Others[i]
}

// checkReader refuses a directory that the named owner does not have, whoever has consented.
func checkReader(op operations.Operation, found ledger.Occupancy) error {
	if found.Info != nil && ownerRead(op, found) != nil {
		return nil
	}
	return fsroot.Refuse(operations.NotOwned, "%s cannot be read: the ledger does not have volume %s as an owner of it",
		fsroot.Quote(op.Path), fsroot.Quote(op.SourceVolume))
}

// belongTo has the entry of a reader belong to the namespace and class of the owner, whose data it is: nobody gets the
// directory by a reader's entry who would not get it without. A reader stays one whatever its volume does later.
func belongTo(e *ledger.Entry, op operations.Operation, found ledger.Occupancy) {
	from, begins := found.Own, op.Reads && !op.Adopt
	if begins {
		from = ownerRead(op, found)
	}
	if from != nil && (begins || from.Reads) {
		e.Reads, e.Namespace, e.NamespaceUID, e.Class = true, from.Namespace, from.NamespaceUID, from.Class
	}
}
