package directories

import (
	"context"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// occupancy reads the entries and the directory. Retained data that is not there was removed by a
// person, and its marks are dropped.
func (b *batch) occupancy(ctx context.Context, op operations.Operation) (occupancy, error) {
	found, err := b.ledger.owners(ctx, op)
	if err != nil {
		return occupancy{}, err
	}
	found.info, err = b.data.stat(ctx, op.Path)
	if err != nil || found.info != nil || len(found.retained) == 0 {
		return found, err
	}
	back, err := b.resumeUndoOfOthers(ctx, op, found)
	if err != nil {
		return occupancy{}, err
	}
	if back {
		found.info, err = b.data.stat(ctx, op.Path)
		return found, err
	}
	err = b.ledger.drop(ctx, op.Path, found.retained...)
	found.retained = nil
	return found, err
}
