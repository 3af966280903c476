package directories

import (
	"context"
	"iter"
	"maps"
	"slices"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/requests"
)

// EmptyTrash removes what an administrator has selected, whether its time is over or not. It removes as
// Sweep does, and like it goes on beside batches and can be stopped at any time.
func (f *FileSystem) EmptyTrash(ctx context.Context, selection requests.Selection, options SweepOptions) (operations.Swept, error) {
	s := &sweep{fs: f, selected: func(record *trashRecord) bool { return selection.Has(trashed(record.slot, record)) }}
	return s.run(ctx, s.stageSelected, options)
}

// stageSelected moves what is selected to the staging directory, bucket by bucket.
func (s *sweep) stageSelected(ctx context.Context) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		emit := stoppable(ctx, yield)
		buckets := map[string][]string{}
		// Also records without a directory, which a run that died has moved already.
		err := s.trash.eachRecord(ctx, func(record *trashRecord) {
			if s.selected(record) {
				bucket := bucketOf(record.slot)
				buckets[bucket] = append(buckets[bucket], record.slot)
			} else {
				s.swept.Kept++
			}
		})
		if err != nil {
			emit(nil, err)
			return
		}
		for _, bucket := range slices.Sorted(maps.Keys(buckets)) {
			for piece := range slices.Chunk(buckets[bucket], stagedAtOnce) {
				if !emit(s.stageSome(ctx, piece)) {
					return
				}
			}
		}
	}
}
