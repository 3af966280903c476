package batch

import (
	"context"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// abandon ends a clone whose claim is deleted. The copy goes where sweeps remove everything, whether it is
// complete or not; if it was published, as the directory of any volume that is cleaned up.
func (b *Batch) abandon(ctx context.Context, op operations.Operation) (Outcome, error) {
	if _, err := b.trash.DiscardCopy(ctx, op.Volume, func(time.Time) bool { return true }); err != nil {
		return Outcome{}, err
	}
	op.Kind, op.Abandon, op.LeaveToOthers = operations.Cleanup, false, true
	return b.cleanup(ctx, op)
}
