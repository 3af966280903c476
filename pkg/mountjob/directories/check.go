package directories

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
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
		mark, isMark := strings.CutPrefix(name, checkPrefix)
		parts := strings.Split(mark, ".")
		if !isMark || len(parts) < 3 {
			continue
		}
		when, timeErr := time.Parse(bucketLayout, parts[0])
		k, keptErr := strconv.Atoi(parts[1])
		u, unknownErr := strconv.Atoi(parts[2])
		if errors.Join(timeErr, keptErr, unknownErr) == nil && when.After(at) {
			at, kept, unknown = when, k, u
		}
	}
	return at, kept, unknown
}

func checkMark(now time.Time, kept, unknown int) string {
	return checkPrefix + now.UTC().Format(bucketLayout) + "." + strconv.Itoa(kept) + "." + strconv.Itoa(unknown)
}

// check indexes what the index misses, and condemns what of it is due.
func (s *sweep) check(ctx context.Context, names []string, yield func([]string, error) bool) {
	at, kept, unknown := lastCheck(names)
	if age := s.now.Sub(at); age >= 0 && age < checkInterval {
		s.swept.Kept, s.swept.Unknown = kept, unknown
		return
	}
	missed, err := s.missed(ctx, names)
	if err != nil {
		yield(nil, err)
		return
	}
	for piece := range slices.Chunk(missed, checkedAtOnce) {
		due, err := s.indexSome(ctx, piece)
		if err != nil && (!yield(nil, err) || IsStop(err)) {
			return
		}
		for some := range slices.Chunk(due, condemnedAtOnce) {
			if !s.condemnSome(ctx, "", some, func(moved []string, err error) bool {
				s.swept.Kept -= len(moved)
				return yield(moved, err)
			}) {
				return
			}
		}
	}
	if err := s.markCheck(ctx, names); err != nil {
		yield(nil, err)
	}
}

// checkedAtOnce is how many records are read before those that are due are condemned.
const checkedAtOnce = 256

// missed lists the slots that have a record and are not in the index. It counts the directories.
func (s *sweep) missed(ctx context.Context, names []string) ([]string, error) {
	indexed, err := s.indexed(ctx, names)
	if err != nil {
		return nil, err
	}
	listed, err := s.fs.list(ctx, s.trash, wellknown.TrashDirectory)
	if err != nil {
		return nil, err
	}
	slices.Sort(listed)
	var missed []string
	for _, name := range listed {
		slot, isRecord := strings.CutPrefix(name, wellknown.OwnerPrefix)
		switch {
		case name == sweepingName:
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
	var buckets []string
	for _, name := range names {
		if _, isBucket := bucketTime(name); isBucket || name == bucketNever {
			buckets = append(buckets, name)
		}
	}
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
		s.index.trim()
	}
	return indexed, nil
}

// indexSome reads records that the index misses, and lists those that are not due.
func (s *sweep) indexSome(ctx context.Context, slots []string) (due []string, err error) {
	found, err := s.fs.openRecords(ctx, s.trash, slots, s.workers)
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
			later = append(later, f.record)
		}
	}
	return due, errors.Join(append(errs, s.list(ctx, later))...)
}

func (s *sweep) list(ctx context.Context, records []*trashRecord) error {
	for _, record := range records {
		if !record.forever {
			s.waitFor(record)
		}
	}
	err := inParallel(ctx, s.workers, len(records), func(i int) error {
		err := s.index.put(ctx, records[i].bucket(), records[i].slot)
		if errors.Is(err, errNoIndex) {
			return nil // the next check has it again
		}
		return err
	})
	s.index.trim()
	if err == nil {
		s.swept.Indexed += len(records)
	}
	return err
}

// markCheck leaves a mark in the index of a large trash, in place of those of earlier checks.
func (s *sweep) markCheck(ctx context.Context, names []string) error {
	if s.index.folder == nil {
		return nil
	}
	mark := ""
	if s.swept.Kept > alwaysChecked {
		mark = checkMark(s.now, s.swept.Kept, s.swept.Unknown)
		if err := s.index.mark(ctx, mark); err != nil {
			return err
		}
	}
	return s.index.dropMarks(ctx, names, mark)
}

func (x *dueIndex) mark(ctx context.Context, mark string) error {
	err := x.fs.beforeGrowing(ctx, "make "+inIndex(mark))
	if err == nil {
		err = x.folder.Mkdir(mark, privateDirectory)
	}
	if err == nil || errors.Is(err, fs.ErrExist) || isNoSpace(err) { // without it, the next sweep checks
		return nil
	}
	return fmt.Errorf("making %s: %w", inIndex(mark), err)
}

// dropMarks removes the marks of checks but one.
func (x *dueIndex) dropMarks(ctx context.Context, names []string, but string) error {
	for _, name := range names {
		if !strings.HasPrefix(name, checkPrefix) || name == but {
			continue
		}
		if err := x.fs.before(ctx, "remove "+inIndex(name)); err != nil {
			return err
		}
		if err := ignoreMissing(x.folder.Remove(name)); err != nil {
			return fmt.Errorf("removing %s: %w", inIndex(name), err)
		}
	}
	return nil
}

// wantCheck makes the next sweep check the whole trash.
func (x *dueIndex) wantCheck(ctx context.Context) error {
	names, err := x.names(ctx)
	if err != nil {
		return err
	}
	return x.dropMarks(ctx, names, "")
}
