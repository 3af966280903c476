package directories

import (
	"context"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// give enters the claim and the namespace that the operation's volume has now, where its entries have earlier
// ones: an administrator may have reserved the volume for another claim since. What its pods wrote is that
// claim's, also in the trash and as retained data.
func (b *batch) give(ctx context.Context, op operations.Operation, found *occupancy) (err error) {
	if found.own != nil {
		found.own, err = b.giveEntry(ctx, op, found.own)
	}
	for i, mark := range found.retained {
		if err == nil {
			found.retained[i], err = b.giveEntry(ctx, op, mark)
		}
	}
	return err
}

func (b *batch) giveEntry(ctx context.Context, op operations.Operation, e *entry) (*entry, error) {
	isSame := e.Namespace == op.Namespace && (op.NamespaceUID == "" || e.NamespaceUID == "" || e.NamespaceUID == op.NamespaceUID)
	if !e.isOf(op.Owner) || isSame || op.Namespace == "" {
		return e, nil
	}
	given := *e
	given.Namespace, given.NamespaceUID, given.Claim = op.Namespace, op.NamespaceUID, op.Claim
	return &given, b.ledger.write(ctx, op.Path, &given)
}
