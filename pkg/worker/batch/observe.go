package batch

import (
	"context"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/ledger"
)

// Occupancy reads the entries and the directory. Retained data that is not there was removed by a
// person, and its marks are dropped.
func (b *Batch) Occupancy(ctx context.Context, op operations.Operation) (ledger.Occupancy, error) {
	found, err := b.Ledger.Owners(ctx, op)
	if err != nil {
		return ledger.Occupancy{}, err
	}
	found.Info, err = b.Data.Inspect(ctx, op.Path)
	if err != nil || found.Info != nil || len(found.Retained) == 0 {
		return found, err
	}
	back, err := b.resumeUndoOfOthers(ctx, op, found)
	if err != nil {
		return ledger.Occupancy{}, err
	}
	if back {
		found.Info, err = b.Data.Inspect(ctx, op.Path)
		return found, err
	}
	err = b.Ledger.Drop(ctx, op.Path, found.Retained...)
	found.Retained = nil
	return found, err
}
