package directories

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"time"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// sweepingName is the directory, in the trash, of what is being removed. It holds nothing that
// anybody could have back, so a sweep that died is gone on with without asking for records.
const sweepingName = wellknown.OwnerPrefix + wellknown.OwnerPrefix + "sweeping"

// SweepOptions say how the trash is emptied.
type SweepOptions struct {
	// Now decides what was kept long enough.
	Now time.Time
	// Workers is how many directories are emptied at once; 0 is DefaultSweepWorkers.
	Workers int
	// Begun, if not nil, hears that all that is due is out of reach, and that its removal begins.
	Begun func(Swept)
	// Progress, if not nil, hears of every Every removals; one call at a time.
	Progress func(Swept)
	Every    int64 // 0 is 1000
}

// DefaultSweepWorkers hide the round trips of an NFS server from each other.
const DefaultSweepWorkers = 64

// Swept is what a sweep has done, and what it has left.
type Swept struct {
	// Removed counts files and directories.
	Removed int64 `json:"removed"`
	// Volumes counts the directories in the trash whose time was over.
	Volumes int `json:"volumes"`
	// Kept counts those whose time is not over, or that nothing is known about.
	Kept int `json:"kept"`
	// Next is when the next one's time is over; zero is never.
	Next time.Time `json:"next,omitzero"`
}

// Sweep removes what is in the trash and was kept long enough. It takes the lock only for
// moments, so batches go on beside it, and can be stopped at any time: the next sweep goes on.
// What cannot be removed does not keep the rest from going.
func (f *FileSystem) Sweep(ctx context.Context, options SweepOptions) (Swept, error) {
	trash, err := f.stateFolder(ctx, path.Base(wellknown.TrashDirectory))
	if err != nil {
		return Swept{}, err
	}
	defer closeRoot(trash)
	s := &sweep{fs: f, trash: trash, now: options.Now}
	if err := s.open(ctx); err != nil {
		return Swept{}, err
	}
	defer closeRoot(s.sweeping)
	if err := s.condemn(ctx); err != nil {
		return s.swept, err
	}
	if options.Begun != nil {
		options.Begun(s.swept)
	}
	r := newRemoval(f, s.sweeping, options, s.swept)
	return r.run(ctx)
}

type sweep struct {
	fs       *FileSystem
	trash    *os.Root
	sweeping *os.Root
	now      time.Time
	swept    Swept
}

func (s *sweep) open(ctx context.Context) error {
	where := inTrash(sweepingName)
	if err := s.trash.Mkdir(sweepingName, privateDirectory); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making %s: %w", where, err)
	}
	sweeping, err := s.fs.enter(ctx, s.trash, sweepingName, where)
	s.sweeping = sweeping
	return err
}

// condemn moves what is due to where no restore looks.
func (s *sweep) condemn(ctx context.Context) error {
	due, err := s.due(ctx)
	if err != nil {
		return err
	}
	for len(due) > 0 {
		some := due[:min(len(due), condemnedAtOnce)]
		if err := s.condemnSome(ctx, some); err != nil {
			return err
		}
		due = due[len(some):]
	}
	return nil
}

// condemnedAtOnce bounds how long batches wait for the lock.
const condemnedAtOnce = 64

// due lists slots whose time is over, and counts the others. It needs no lock: each is looked at
// again under it.
func (s *sweep) due(ctx context.Context) ([]string, error) {
	if err := s.fs.before(ctx, "read "+wellknown.TrashDirectory); err != nil {
		return nil, err
	}
	slots, records, err := listTrash(s.trash)
	if err != nil {
		return nil, err
	}
	var due []string
	over, until := map[string]bool{}, map[string]time.Time{}
	for _, record := range records {
		over[record.slot], until[record.slot] = record.due(s.now)
		if over[record.slot] {
			due = append(due, record.slot) // even if only the record is left
		}
	}
	for _, slot := range slots {
		if !over[slot] {
			s.keep(until[slot])
		}
	}
	return due, nil
}

func (s *sweep) keep(until time.Time) {
	s.swept.Kept++
	if !until.IsZero() && (s.swept.Next.IsZero() || until.Before(s.swept.Next)) {
		s.swept.Next = until
	}
}

func (s *sweep) condemnSome(ctx context.Context, slots []string) error {
	lock, err := s.fs.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	for _, slot := range slots {
		if err := s.condemnOne(ctx, slot); err != nil {
			return err
		}
	}
	return nil
}

// condemnOne moves one directory, then drops its record. A record whose directory is not there
// is of a cleanup that died before its move, and will write it again.
func (s *sweep) condemnOne(ctx context.Context, slot string) error {
	record, err := readRecord(s.trash, slot)
	if err != nil || record == nil {
		return err // restored meanwhile
	}
	if due, _ := record.due(s.now); !due {
		return nil
	}
	err = s.fs.move(ctx, "condemn "+inTrash(slot), s.trash, slot, s.sweeping, unique(slotName("swept", 1)))
	if err == nil {
		s.swept.Volumes++
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return s.fs.dropRecord(ctx, s.trash, slot)
}
