package trash

import (
	"context"
	"iter"
	"maps"
	"slices"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/treewalk"
)

// EmptyTrash removes what an administrator has selected, whether its time is over or not. It removes as
// Sweep does, and like it goes on beside batches and can be stopped at any time.
func EmptyTrash(ctx context.Context, f *fsroot.FileSystem, selection requests.Selection, options treewalk.Options) (operations.Swept, error) {
	s := &SweepRun{System: f, Selected: func(record *TrashRecord) bool { return selection.Has(trashed(record.Slot, record)) }}
	return s.run(ctx, s.stageSelected, options)
}

// stageSelected moves what is selected to the staging directory, bucket by bucket.
func (s *SweepRun) stageSelected(ctx context.Context) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		emit := stoppable(ctx, yield)
		buckets := map[string][]string{}
		// Also records without a directory, which a run that died has moved already.
		err := s.trash.eachRecord(ctx, func(record *TrashRecord) {
			if s.Selected(record) {
				bucket := bucketOf(record.Slot)
				buckets[bucket] = append(buckets[bucket], record.Slot)
			} else {
				s.swept.Kept++
			}
		})
		if err != nil {
			emit(nil, err)
			return
		}
		for _, bucket := range slices.Sorted(maps.Keys(buckets)) {
			for piece := range slices.Chunk(buckets[bucket], StagedAtOnce) {
				if !emit(s.StageSome(ctx, piece)) {
					return
				}
			}
		}
	}
}
