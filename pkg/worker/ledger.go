package worker

import (
	"context"
	"errors"
	"fmt"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/worker/batch"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/ledger"
	"gnuthought.com/efs-stunnel/pkg/worker/trash"
)

// answerRequest answers a request of an administrator, as lines on the standard output.
func (j job) answerRequest(ctx context.Context) error {
	answer := requests.NewWriter(j.Stdout)
	end := requests.End{}
	err := j.answer(ctx, answer, &end)
	if err != nil {
		end.Stopped, end.Error = fsroot.IsStop(err), operations.Truncate(fsroot.ResultOf(err).Message, maxErrorBytes)
		err = errors.Join(err, writeReport(j.options.terminationLog, []byte("mountjob: "+end.Error)))
	}
	return errors.Join(err, answer.End(end))
}

// maxErrorBytes is as much of an error as an answer has.
const maxErrorBytes = 1024

func (j job) answer(ctx context.Context, answer *requests.Writer, end *requests.End) error {
	fileSystem, err := j.open(ctx)
	if err != nil {
		return err
	}
	defer fileSystem.Close()
	switch request := j.options.request; request.Do {
	case requests.ListTrash:
		return trash.List(ctx, fileSystem, answer.Trashed)
	case requests.EmptyTrash:
		progress, stop := j.logSweep()
		defer stop()
		swept, err := trash.Empty(ctx, fileSystem, *request.Selection, progress)
		end.Swept = &swept
		return err
	case requests.ListOwners:
		if request.Lost != nil {
			if err := batch.CheckGone(ctx, fileSystem, *request.Lost); err != nil {
				return err
			}
		}
		return ledger.ListOwners(ctx, fileSystem, answer.Owned)
	case requests.ReleaseCluster:
		return batch.ReleaseCluster(ctx, fileSystem, *request.Release, answer.Owned)
	case requests.ListDirectories:
		return errors.Join(
			ledger.ListOwners(ctx, fileSystem, answer.Owned),
			fileSystem.ListDirectories(ctx, *request.Directories, answer.Directory),
		)
	case requests.AdoptVolumes:
		return batch.AdoptVolumes(ctx, fileSystem, *request.Adoption, answer.Adopted)
	default:
		return fmt.Errorf("there is no request %q", request.Do) // parseOptions has refused it
	}
}
