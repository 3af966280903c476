// Package batch carries out operations under the lock of a file system: it makes, removes and restores the
// directories of volumes. Repeating an operation is harmless, whatever line the last run stopped at.
package batch

import (
	"context"
	"errors"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/ledger"
	"gnuthought.com/efs-stunnel/pkg/worker/trash"
)

// Run carries out a batch under the lock, each operation whatever becomes of the others. When ctx ends, it stops
// between two steps, and the rest is NotDone.
func Run(ctx context.Context, f *fsroot.FileSystem, ops []operations.Operation, options Options) (report operations.Report) {
	err := Locked(ctx, f, func(b *Batch) error {
		b.late = !options.Received.IsZero() && time.Since(options.Received) > patience
		for _, op := range ops {
			b.newOwners[op.Volume] = b.newOwners[op.Volume] || op.AddsOwner()
		}
		report.Results = b.run(ctx, ops, options)
		return nil
	})
	if err == nil {
		return report
	}
	for _, op := range ops {
		options.Ended.report(op, OutcomeOf(err), 0)
	}
	return operations.RefusedReport(len(ops), fsroot.ResultOf(err))
}

var errLate = errors.New("the batch is old")

// Locked does something with a batch while no other Job changes the file system.
func Locked(ctx context.Context, f *fsroot.FileSystem, do func(*Batch) error) error {
	lock, err := f.Lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	b, err := Begin(ctx, f, lock)
	if err != nil {
		return err
	}
	defer b.End()
	return do(b)
}

// Options configure how a batch is carried out.
type Options struct {
	// Workers is how many operations are done at once; 0 is defaultWorkers.
	Workers int
	// Received is when this process got the batch, zero is now. One that is older than patience when it has the lock
	// removes nothing.
	Received time.Time
	// Ended, if not nil, is called when an operation has ended, one call at a time.
	Ended Observer
}

// patience is less than the time after which the Job of a node that is cut off counts as stuck. Then there is another
// one, and the volume may be wanted again.
const patience = time.Minute

// defaultWorkers hide the round trips of an operation, some twenty, from those of others.
const defaultWorkers = 16

// Batch is shared by the operations of one Run, which use it at once. It lives as long as the lock is held, so what it
// has read of the ledger stays true.
type Batch struct {
	system *fsroot.FileSystem
	lock   *fsroot.HeldLock
	tmp    *fsroot.TmpDirs
	Trash  *trash.Trash
	Data   *fsroot.Tree // the directories of volumes, and those on the way to them
	Ledger *ledger.Ledger
	gids   *ledger.Gids

	outdated atomic.Bool // another Job has changed the ledger
	late     bool        // the next Job removes what is to be removed

	// newOwners are the volumes that operations of the batch make owners; complete before the first.
	newOwners map[string]bool

	slots func() (map[string][]string, error) // of the trash, by volume, see beginPhase

	// otherRecords are those that findByClaim has read, by claim uid; nil until then. Restores are in one set.
	otherRecords map[string][]*trash.Record

	// running is held for reading during an operation, and for writing while no other one may run.
	running sync.RWMutex
	alone   bool       // an operation has running for writing; guarded by running
	making  sync.Mutex // held while a directory on the way to volumes is made
	undoing sync.Mutex // held while setups go on for cleanups that died
}

// Begin begins a batch, whose caller has the lock.
func Begin(ctx context.Context, f *fsroot.FileSystem, lock *fsroot.HeldLock) (*Batch, error) {
	b := &Batch{system: f, lock: lock, tmp: &fsroot.TmpDirs{System: f, Lock: lock}, newOwners: map[string]bool{}}
	b.Data = fsroot.NewTree(f.Root, b.makeShared)
	if err := b.open(ctx); err != nil {
		b.End()
		return nil, err
	}
	return b, nil
}

func (b *Batch) open(ctx context.Context) (err error) {
	if b.Trash, err = trash.Open(ctx, b.system); err != nil {
		return err
	}
	if err := b.tmp.RemoveOthers(ctx); err != nil {
		return err
	}
	b.beginPhase(ctx)
	owners, err := b.system.State.Ensure(ctx, path.Base(wellknown.OwnersDirectory))
	if err != nil {
		return err
	}
	b.Ledger = ledger.NewLedger(b.tmp, b.Data, owners)
	allocated, err := b.system.State.Ensure(ctx, ledger.GidsName)
	b.gids = ledger.NewGIDs(allocated, b.Ledger, b.Trash.Gids, func() bool { return b.alone })
	return err
}

// End closes the handles of a batch.
func (b *Batch) End() {
	b.tmp.Close()
	b.Trash.Close()
	b.Data.Forget("/")
	if b.Ledger != nil {
		b.Ledger.Tree.Close()
	}
	if b.gids != nil {
		b.gids.Dir.Close()
	}
}

// Do does one operation, beside others if it can.
func (b *Batch) Do(ctx context.Context, op operations.Operation) Outcome {
	if b.late && !op.AddsOwner() {
		return OutcomeOf(&fsroot.StopError{Cause: errLate})
	}
	result, err := b.doBesideOthers(ctx, op)
	if errors.Is(err, ledger.ErrAlone) {
		result, err = b.doAlone(ctx, op)
	}
	// A refusal leaves no doubt: in a batch with many, everything would be read again for each.
	refusal, refused := fsroot.AsRefusal(err)
	inDoubt := err != nil && (!refused || refusal.Reason == operations.Changed) || b.outdated.Load()
	if inDoubt || b.Data.IsLarge() || b.Ledger.Tree.IsLarge() {
		b.forget(inDoubt)
	}
	if err != nil {
		return OutcomeOf(err)
	}
	return result
}

func (b *Batch) doBesideOthers(ctx context.Context, op operations.Operation) (Outcome, error) {
	b.running.RLock()
	defer b.running.RUnlock()
	return b.attempt(ctx, op)
}

func (b *Batch) doAlone(ctx context.Context, op operations.Operation) (Outcome, error) {
	b.running.Lock()
	defer b.running.Unlock()
	b.alone = true
	defer func() { b.alone = false }()
	return b.attempt(ctx, op)
}

// forget closes handles of directories while no operation runs, and drops what is in doubt of the ledger.
func (b *Batch) forget(inDoubt bool) {
	b.running.Lock()
	defer b.running.Unlock()
	b.Data.Forget("/")
	b.Ledger.Tree.Forget("/")
	if inDoubt {
		b.Ledger.Forget()
		b.outdated.Store(false)
	}
}

func (b *Batch) attempt(ctx context.Context, op operations.Operation) (Outcome, error) {
	if err := b.Check(ctx, op); err != nil {
		return Outcome{}, err
	}
	switch op.Kind {
	case operations.Setup:
		return b.setup(ctx, op)
	case operations.Cleanup:
		return b.cleanup(ctx, op)
	case operations.Restore:
		return b.restore(ctx, op)
	case operations.Release:
		return b.release(ctx, op)
	case operations.Clone:
		if op.Copies() {
			return Outcome{}, fsroot.Refuse(operations.BadOperation, "a clone has a Job of its own")
		}
		return b.abandon(ctx, op)
	default:
		return Outcome{}, fsroot.Refuse(operations.BadOperation, "no such kind") // Check has refused it
	}
}

// Check is what all operations have in common.
func (b *Batch) Check(ctx context.Context, op operations.Operation) error {
	if err := b.system.Before(ctx, "begin "+string(op.Kind)); err != nil {
		return err
	}
	if err := b.lock.WasLost(); err != nil {
		return err
	}
	if err := operations.CheckPath(op.Path); err != nil {
		return fsroot.Refuse(operations.BadPath, "%v", err)
	}
	if err := op.Check(); err != nil {
		return fsroot.Refuse(operations.BadOperation, "%v", err)
	}
	return nil
}

// Action is what an operation has done, for the log.
type Action string

// The actions.
const (
	Created  Action = "created"  // the directory
	Recorded Action = "recorded" // a new owner of a directory that was there
	Restored Action = "restored" // the directory, from the trash
	Cloned   Action = "cloned"   // the directory of another volume
	Trashed  Action = "trashed"  // the directory
	Kept     Action = "kept"     // the directory, whose owner is gone
	Released Action = "released" // an owner
	Nothing  Action = "nothing"  // there was neither directory nor owner any more
	Blocked  Action = "blocked"  // by other owners
	Refused  Action = "refused"  // by the rules of the ledger, or because of what is at the path
	Failed   Action = "failed"   // at the file system
	Stopped  Action = "stopped"  // before it was done
)

// Outcome is a result, with what the log says about it.
type Outcome struct {
	operations.Result
	Action Action
}

// Observer is told how an operation has ended, and how long it took.
type Observer func(op operations.Operation, o Outcome, took time.Duration)

func (tell Observer) report(op operations.Operation, o Outcome, took time.Duration) {
	if tell != nil {
		tell(op, o, took)
	}
}

// DoneBy returns the outcome of an operation that is done.
func DoneBy(action Action, result operations.Result) Outcome {
	result.State = operations.Done
	return Outcome{result, action}
}

// OutcomeOf is that of an operation that ended with an error.
func OutcomeOf(err error) Outcome {
	result := fsroot.ResultOf(err)
	_, refused := fsroot.AsRefusal(err)
	switch {
	case result.State == operations.NotDone:
		return Outcome{result, Stopped}
	case refused:
		return Outcome{result, Refused}
	}
	return Outcome{result, Failed}
}
