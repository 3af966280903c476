package batch

import (
	"context"
	"fmt"
	"slices"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

// AdoptVolumes makes volumes the owners of directories that exist, as the setup of an adopted volume does. It
// takes over nothing of a cluster that seems to live. A volume that is refused does not keep the others from
// their directories; emit gets what became of each.
func AdoptVolumes(ctx context.Context, f *fsroot.FileSystem, adoption requests.Adoption, emit func(requests.Adopted) error) error {
	if lost := adoption.Lost; lost != nil && lost.Cluster != adoption.Cluster {
		if err := CheckGone(ctx, f, *lost); err != nil {
			return err
		}
	}
	for piece := range slices.Chunk(adoption.Volumes, wellknown.DefaultMountJobBatch) {
		ops := make([]operations.Operation, len(piece))
		for i, v := range piece {
			ops[i] = adoption.Operation(v)
		}
		for i, result := range Run(ctx, f, ops, nil).Results {
			adopted := requests.Adopted{Volume: piece[i].Name, Path: piece[i].Path}
			if result.State != operations.Done {
				adopted.Problem = operations.Truncate(result.Message, fsroot.MaxProblemBytes)
			}
			if err := emit(adopted); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return fmt.Errorf("adopting volumes: %w", &fsroot.StopError{Cause: context.Cause(ctx)})
		}
	}
	return nil
}
