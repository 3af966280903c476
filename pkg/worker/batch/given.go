package batch

import (
	"context"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/ledger"
)

// give enters the claim and the namespace that the operation's volume has now, where its entries have earlier
// ones: an administrator may have reserved the volume for another claim since. What its pods wrote is that
// claim's, also in the trash and as retained data.
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
	if !e.IsOf(op.Owner) || isSame || op.Namespace == "" {
		return e, nil
	}
	given := *e
	given.Namespace, given.NamespaceUID, given.Claim = op.Namespace, op.NamespaceUID, op.Claim
	return &given, b.Ledger.Write(ctx, op.Path, &given)
}
