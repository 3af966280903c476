package directories

import (
	"context"
	"errors"
	"path"
	"slices"
	"sync"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Run carries out a batch under the lock and reports the result of each operation. One that fails
// does not keep the others from being done. When ctx ends, Run stops between two steps, and the
// rest is NotDone. progress, if not nil, is called after each operation, one call at a time.
func (f *FileSystem) Run(ctx context.Context, ops []operations.Operation, progress func(done, total int)) operations.Report {
	lock, err := f.lock(ctx)
	if err != nil {
		return f.refuseAll(ops, err)
	}
	defer lock.Close()
	b, err := f.begin(ctx, lock)
	if err != nil {
		return f.refuseAll(ops, err)
	}
	defer b.end()
	for _, op := range ops {
		b.newOwners[op.Volume] = b.newOwners[op.Volume] || op.AddsOwner()
	}
	if progress == nil {
		progress = func(int, int) {}
	}
	return operations.Report{Results: b.run(ctx, ops, progress)}
}

func (f *FileSystem) refuseAll(ops []operations.Operation, err error) operations.Report {
	for _, op := range ops {
		outcomeOf(err).reportTo(f, op, 0)
	}
	return operations.RefusedReport(len(ops), ResultOf(err))
}

// batch is what the operations of one Run share. It lives as long as the lock is held, so what
// it has read of the ledger stays true. Operations of several sets use it at once.
type batch struct {
	fs     *FileSystem
	lock   *heldLock
	tmp    *tmpDirs
	trash  *trash
	data   *tree // the directories of volumes, and those on the way to them
	ledger *ledger
	gids   *gids

	// newOwners are the volumes that operations of the batch make owners; complete before the first.
	newOwners map[string]bool

	// slots are those in the trash that findByVolume has listed, by volume, and otherRecords the records that
	// findByClaim has read, by claim uid; nil until they have. Only restores use them, which are in one set.
	slots        map[string][]string
	otherRecords map[string][]*trashRecord

	listing sync.Mutex
	earlier map[string][]string // slots by volume, as earlierSlots has listed them; guarded by listing

	// running is held for reading during an operation, and for writing while no other one may run.
	running sync.RWMutex
	alone   bool       // an operation has running for writing; guarded by running
	making  sync.Mutex // held while a directory on the way to volumes is made
	undoing sync.Mutex // held while setups go on for cleanups that died
}

func (f *FileSystem) begin(ctx context.Context, lock *heldLock) (*batch, error) {
	b := &batch{fs: f, lock: lock, tmp: &tmpDirs{fs: f, lock: lock}, newOwners: map[string]bool{}}
	b.data = newTree(f.root, b.makeShared)
	if err := b.open(ctx); err != nil {
		b.end()
		return nil, err
	}
	return b, nil
}

func (b *batch) open(ctx context.Context) (err error) {
	if err := b.tmp.removeOthers(ctx); err != nil {
		return err
	}
	if b.trash, err = b.fs.openTrash(ctx); err != nil {
		return err
	}
	owners, err := b.fs.state.ensure(ctx, path.Base(wellknown.OwnersDirectory))
	if err != nil {
		return err
	}
	b.ledger = newLedger(b.tmp, b.data, owners)
	allocated, err := b.fs.state.ensure(ctx, gidsName)
	b.gids = newGIDs(allocated, b.ledger, b.trash.gids, func() bool { return b.alone })
	return err
}

func (b *batch) end() {
	b.tmp.close()
	b.trash.close()
	b.data.forget("/")
	if b.ledger != nil {
		b.ledger.tree.close()
	}
	if b.gids != nil {
		b.gids.dir.close()
	}
}

func (b *batch) do(ctx context.Context, op operations.Operation) outcome {
	result, err := b.doBesideOthers(ctx, op)
	if errors.Is(err, errAlone) {
		result, err = b.doAlone(ctx, op)
	}
	if leavesDoubt(err) || b.ledger.isOutdated() {
		b.forget()
	}
	b.trim()
	if err != nil {
		return outcomeOf(err)
	}
	return result
}

func (b *batch) doBesideOthers(ctx context.Context, op operations.Operation) (outcome, error) {
	b.running.RLock()
	defer b.running.RUnlock()
	return b.attempt(ctx, op)
}

func (b *batch) doAlone(ctx context.Context, op operations.Operation) (outcome, error) {
	b.running.Lock()
	defer b.running.Unlock()
	b.alone = true
	defer func() { b.alone = false }()
	return b.attempt(ctx, op)
}

// leavesDoubt reports whether an error leaves in doubt what was written. A refusal does not: in a batch
// with many, everything would be read again for each.
func leavesDoubt(err error) bool {
	if r, ok := asRefusal(err); ok {
		return r.Reason == operations.Changed
	}
	return err != nil
}

// forget drops what was read.
func (b *batch) forget() {
	b.running.Lock()
	defer b.running.Unlock()
	b.ledger.forget()
	b.data.forget("/")
}

// trim closes handles if they are many.
func (b *batch) trim() {
	trees := []*tree{b.data, b.ledger.tree}
	if !slices.ContainsFunc(trees, (*tree).isLarge) {
		return
	}
	b.running.Lock()
	defer b.running.Unlock()
	for _, t := range trees {
		t.trim()
	}
}

func (b *batch) attempt(ctx context.Context, op operations.Operation) (outcome, error) {
	if err := b.check(ctx, op); err != nil {
		return outcome{}, err
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
			return outcome{}, refuse(operations.BadOperation, "a clone has a Job of its own")
		}
		return b.abandon(ctx, op)
	default:
		return outcome{}, refuse(operations.BadOperation, "no such kind") // Check has refused it
	}
}

// check is what all operations have in common.
func (b *batch) check(ctx context.Context, op operations.Operation) error {
	if err := b.fs.before(ctx, "begin "+string(op.Kind)); err != nil {
		return err
	}
	if err := b.lock.wasLost(); err != nil {
		return err
	}
	if err := operations.CheckPath(op.Path); err != nil {
		return refuse(operations.BadPath, "%v", err)
	}
	if err := op.Check(); err != nil {
		return refuse(operations.BadOperation, "%v", err)
	}
	return nil
}
