package directories

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// A check compares the names in the trash with those in the index, and counts what is kept. The
// index misses what a version before has put into the trash, perhaps in another cluster, and what
// came there while the server was full.

const (
	// checkInterval is how often a large trash is checked: its names alone fill many answers of the
	// server.
	checkInterval = time.Hour
	// alwaysChecked is how many directories a trash has that is checked by every sweep.
	alwaysChecked = 2000
	// checkPrefix begins the name of the mark that a check leaves in the index of a large trash: when
	// it was, and what it has counted.
	checkPrefix = "checked."
)

// lastCheck reads the newest mark in the index.
func lastCheck(names []string) (at time.Time, kept, unknown int) {
	for _, name := range names {
		var stamp string
		var k, u int
		_, err := fmt.Sscanf(name, checkPrefix+"%16s.%d.%d", &stamp, &k, &u)
		when, timeErr := time.Parse(bucketLayout, stamp)
		if errors.Join(err, timeErr) == nil && when.After(at) {
			at, kept, unknown = when, k, u
		}
	}
	return at, kept, unknown
}

func checkMark(now time.Time, kept, unknown int) string {
	return fmt.Sprintf(checkPrefix+"%s.%d.%d", now.UTC().Format(bucketLayout), kept, unknown)
}

// check indexes what the index misses, and stages what of it is due.
func (s *sweep) check(ctx context.Context, names []string, emit emitFunc) {
	at, kept, unknown := lastCheck(names)
	if age := s.now.Sub(at); age >= 0 && age < checkInterval {
		s.swept.Kept, s.swept.Unknown = kept, unknown
		return
	}
	missed, err := s.missed(ctx, names)
	if err != nil {
		emit(nil, err)
		return
	}
	for piece := range slices.Chunk(missed, recordsAtOnce) {
		due, err := s.indexSome(ctx, piece)
		if err != nil && !emit(nil, err) {
			return
		}
		for some := range slices.Chunk(due, stagedAtOnce) {
			staged, err := s.stageSome(ctx, "", some)
			s.swept.Kept -= len(staged)
			if !emit(staged, err) {
				return
			}
		}
	}
	if err := s.markCheck(ctx, names); err != nil {
		emit(nil, err)
	}
}

// missed lists the slots that have a record and are not in the index. It counts the directories.
func (s *sweep) missed(ctx context.Context, names []string) ([]string, error) {
	indexed, err := s.indexed(ctx, names)
	if err != nil {
		return nil, err
	}
	listed, err := s.trash.names(ctx)
	if err != nil {
		return nil, err
	}
	slices.Sort(listed)
	var missed []string
	for _, name := range listed {
		slot, isRecord := strings.CutPrefix(name, wellknown.OwnerPrefix)
		switch {
		case name == stagingName:
		case isRecord && !indexed[slot]:
			missed = append(missed, slot)
		case !isRecord:
			s.swept.Kept++
			if _, hasRecord := slices.BinarySearch(listed, recordName(name)); !hasRecord {
				s.swept.Unknown++
			}
		}
	}
	return missed, nil
}

// indexed lists all buckets. They were listed before the trash: what comes meanwhile is indexed once
// more, under the same time.
func (s *sweep) indexed(ctx context.Context, names []string) (map[string]bool, error) {
	buckets := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		_, hasTime := bucketTime(name)
		return !hasTime && name != bucketNever
	})
	var mu sync.Mutex
	indexed := map[string]bool{}
	for some := range slices.Chunk(buckets, maxOpen) {
		err := inParallel(ctx, s.workers, len(some), func(i int) error {
			slots, err := s.index.slots(ctx, some[i])
			mu.Lock()
			defer mu.Unlock()
			for _, slot := range slots {
				indexed[slot] = true
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		s.index.tree.trim()
	}
	return indexed, nil
}

// indexSome reads records that the index misses. It indexes those that are not due, and gives those
// that are.
func (s *sweep) indexSome(ctx context.Context, slots []string) (due []string, err error) {
	found, err := s.trash.readRecords(ctx, slots, s.workers)
	if err != nil {
		return nil, err
	}
	var later []*trashRecord
	var errs []error
	for i, f := range found {
		switch {
		case f.err != nil:
			errs = append(errs, f.err)
		case f.there && f.record == nil:
			s.swept.Unknown++
		case f.record == nil: // restored meanwhile
		case f.record.isDue(s.now):
			due = append(due, slots[i])
		default:
			s.waitFor(f.record)
			later = append(later, f.record)
		}
	}
	err = inParallel(ctx, s.workers, len(later), func(i int) error {
		err := s.index.put(ctx, later[i].bucket(), later[i].slot)
		if isNoSpace(err) {
			return nil // the next check has it again
		}
		return err
	})
	s.index.tree.trim()
	if err == nil {
		s.swept.Indexed += len(later)
	}
	return due, errors.Join(append(errs, err)...)
}

// markCheck leaves a mark in the index of a large trash, in place of those of earlier checks.
func (s *sweep) markCheck(ctx context.Context, names []string) error {
	if s.index.tree == nil {
		return nil
	}
	mark := ""
	if s.swept.Kept > alwaysChecked {
		mark = checkMark(s.now, s.swept.Kept, s.swept.Unknown)
		if err := s.index.tree.base.mkdir(ctx, mark); err != nil && !isNoSpace(err) { // without it, the next sweep checks
			return err
		}
	}
	return s.index.dropMarks(ctx, names, mark)
}
