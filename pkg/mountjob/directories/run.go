package directories

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"

	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// Run carries out a batch under the lock and says what became of each operation. One that fails
// does not keep the others from being done. When ctx ends, Run stops between two steps, and the
// rest is NotDone. progress, if not nil, hears how many operations are behind it.
func (f *FileSystem) Run(ctx context.Context, ops []operations.Operation, progress func(done, total int)) operations.Report {
	report, err := f.run(ctx, ops, progress)
	if err != nil {
		return operations.RefusedReport(len(ops), ResultOf(err))
	}
	return report
}

func (f *FileSystem) run(ctx context.Context, ops []operations.Operation, progress func(done, total int)) (operations.Report, error) {
	lock, err := f.lock(ctx)
	if err != nil {
		return operations.Report{}, err
	}
	defer lock.Close()
	b, err := f.begin(ctx)
	if err != nil {
		return operations.Report{}, err
	}
	defer b.end()
	for _, operation := range ops {
		b.setUp[operation.Volume] = b.setUp[operation.Volume] || operation.AddsOwner()
	}
	report := operations.Report{Results: make([]operations.Result, len(ops))}
	for done, i := range order(ops) {
		report.Results[i] = b.do(ctx, ops[i])
		if progress != nil {
			progress(done+1, len(ops))
		}
	}
	return report, nil
}

// order gives the places of the operations in the order in which they are done: a path is left
// before it is taken, and owners that are only remembered go before what they block. Restores may have
// to look through the trash, so setups do not wait for them, but for those of a path that a restore
// wants too: it needs the path empty, and they join it.
func order(ops []operations.Operation) []int {
	restored := map[string]bool{}
	places := make([]int, len(ops))
	for i, operation := range ops {
		places[i] = i
		restored[operation.Path] = restored[operation.Path] || operation.Kind == operations.Restore
	}
	kinds := []operations.Kind{operations.Release, operations.Cleanup, operations.Setup, operations.Restore}
	rank := func(i int) int {
		if kind := ops[i].Kind; kind != operations.Setup || !restored[ops[i].Path] {
			return slices.Index(kinds, kind)
		}
		return len(kinds)
	}
	slices.SortStableFunc(places, func(a, b int) int { return rank(a) - rank(b) })
	return places
}

// batch is what the operations of one Run share. It lives as long as the lock is held, so what
// it has read of the ledger stays true.
type batch struct {
	fs     *FileSystem
	tmp    *os.Root
	trash  *os.Root
	data   *tree
	ledger *ledger
	gids   *gids
	clock  *serverClock
	due    *dueIndex // nil until used

	// setUp are the volumes that operations of the batch make owners.
	setUp map[string]bool

	// strays are the records that findStray has read, by claim uid; nil until it has.
	strays map[string][]*trashRecord
}

func (f *FileSystem) begin(ctx context.Context) (*batch, error) {
	b := &batch{fs: f, clock: &serverClock{fs: f}, setUp: map[string]bool{}}
	b.data = &tree{fs: f, base: f.root, where: "/", make: b.makeShared, open: map[string]*os.Root{}}
	err := b.openState(ctx)
	if err == nil {
		err = b.emptyTmp()
	}
	if err != nil {
		b.end()
		return nil, err
	}
	return b, nil
}

func (b *batch) openState(ctx context.Context) error {
	for name, folder := range map[string]**os.Root{
		tmpName: &b.tmp, path.Base(wellknown.TrashDirectory): &b.trash,
	} {
		opened, err := b.fs.stateFolder(ctx, name)
		if err != nil {
			return err
		}
		*folder = opened
	}
	owners, err := b.fs.stateFolder(ctx, path.Base(wellknown.OwnersDirectory))
	if err != nil {
		return err
	}
	b.ledger = newLedger(b, owners)
	folder, err := b.fs.stateFolder(ctx, gidsName)
	b.gids = &gids{batch: b, folder: folder, reclaimed: map[[2]int]bool{}}
	return err
}

// tmpName is the directory, in ours, of what is not yet in its place.
const tmpName = "tmp"

// emptyTmp removes what runs left that died: under the lock, nobody else's is there.
func (b *batch) emptyTmp() error {
	leftovers, err := names(b.tmp, tmpName)
	for _, leftover := range leftovers {
		err = errors.Join(err, b.tmp.Remove(leftover))
	}
	if err != nil {
		return fmt.Errorf("emptying %s: %w", child(wellknown.StateDirectory, tmpName), err)
	}
	return nil
}

func (b *batch) end() {
	closeRoot(b.tmp)
	closeRoot(b.trash)
	b.due.close()
	b.data.forget("/")
	if b.ledger != nil {
		b.ledger.close()
	}
	if b.gids != nil {
		closeRoot(b.gids.folder)
	}
}

func (b *batch) do(ctx context.Context, operation operations.Operation) operations.Result {
	result, err := b.attempt(ctx, operation)
	if err != nil {
		b.forget(err)
		return ResultOf(err)
	}
	b.data.trim()
	b.ledger.tree.trim()
	b.due.trim()
	return result
}

// forget drops what is known after an error that leaves in doubt what was written. A refusal
// does not: in a batch with many, everything would be read again for each.
func (b *batch) forget(err error) {
	if refusal := (*failure)(nil); errors.As(err, &refusal) && refusal.Reason != operations.Changed {
		return
	}
	b.ledger.forget()
	b.data.forget("/")
}

func (b *batch) attempt(ctx context.Context, operation operations.Operation) (operations.Result, error) {
	if err := b.fs.before(ctx, "begin "+string(operation.Kind)); err != nil {
		return operations.Result{}, err
	}
	if err := operations.CheckPath(operation.Path); err != nil {
		return operations.Result{}, refuse(operations.BadPath, "%v", err)
	}
	if err := operation.Check(); err != nil {
		return operations.Result{}, refuse(operations.BadOperation, "%v", err)
	}
	switch operation.Kind {
	case operations.Setup:
		return b.setup(ctx, operation)
	case operations.Cleanup:
		return b.cleanup(ctx, operation)
	case operations.Restore:
		return b.restore(ctx, operation)
	case operations.Release:
		return b.release(ctx, operation)
	default:
		return operations.Result{}, refuse(operations.BadOperation, "no such kind") // Check has refused it
	}
}
