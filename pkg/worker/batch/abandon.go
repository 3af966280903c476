package batch

import (
	"context"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/trash"
)

// abandon ends a clone whose claim is deleted. The copy goes where sweeps remove everything, whether it is
// complete or not; if it was published, as the directory of any volume that is cleaned up.
func (b *Batch) abandon(ctx context.Context, op operations.Operation) (Outcome, error) {
	staging, err := b.trash.Ensure(ctx, trash.StagingName)
	if err != nil {
		return Outcome{}, err
	}
	defer staging.Close()
	if _, err := trash.DiscardCopy(ctx, b.System, op.Volume, staging, always); err != nil {
		return Outcome{}, err
	}
	op.Kind, op.Abandon, op.LeaveToOthers = operations.Cleanup, false, true
	return b.cleanup(ctx, op)
}

func always(time.Time) bool { return true }
