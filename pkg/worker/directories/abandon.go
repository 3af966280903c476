package directories

import (
	"context"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// abandon ends a clone whose claim is deleted. The copy goes where sweeps remove everything, whether it is
// complete or not; if it was published, as the directory of any volume that is cleaned up.
func (b *batch) abandon(ctx context.Context, op operations.Operation) (outcome, error) {
	staging, err := b.trash.ensure(ctx, stagingName)
	if err != nil {
		return outcome{}, err
	}
	defer staging.close()
	if _, err := b.fs.discardCopy(ctx, op.Volume, staging, always); err != nil {
		return outcome{}, err
	}
	op.Kind, op.Abandon, op.LeaveToOthers = operations.Cleanup, false, true
	return b.cleanup(ctx, op)
}

func always(time.Time) bool { return true }
