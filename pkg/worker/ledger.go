package worker

import (
	"context"
	"errors"
	"fmt"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/worker/directories"
)

// answerRequest answers a request of an administrator, as lines on the standard output.
func (j job) answerRequest(ctx context.Context) error {
	answer := requests.NewWriter(j.Stdout)
	end := requests.End{}
	err := j.answer(ctx, answer, &end)
	if err != nil {
		end.Stopped, end.Error = directories.IsStop(err), operations.Truncate(directories.ResultOf(err).Message, maxErrorBytes)
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
		return fileSystem.ListTrash(ctx, answer.Trashed)
	case requests.EmptyTrash:
		progress, stop := j.logSweep()
		defer stop()
		swept, err := fileSystem.EmptyTrash(ctx, *request.Selection, progress)
		end.Swept = &swept
		return err
	case requests.ListOwners:
		if request.Lost != nil {
			if err := fileSystem.CheckGone(ctx, *request.Lost); err != nil {
				return err
			}
		}
		return fileSystem.ListOwners(ctx, answer.Owned)
	case requests.ReleaseCluster:
		return fileSystem.ReleaseCluster(ctx, *request.Release, answer.Owned)
	case requests.ListDirectories:
		return errors.Join(
			fileSystem.ListOwners(ctx, answer.Owned),
			fileSystem.ListDirectories(ctx, *request.Directories, answer.Directory),
		)
	case requests.AdoptVolumes:
		return fileSystem.AdoptVolumes(ctx, *request.Adoption, answer.Adopted)
	default:
		return fmt.Errorf("there is no request %q", request.Do) // parseOptions has refused it
	}
}
