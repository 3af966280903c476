package directories

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"

	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// Run carries out a batch under the lock and reports the result of each operation. One that fails
// does not keep the others from being done. When ctx ends, Run stops between two steps, and the
// rest is NotDone. progress, if not nil, is called after each operation.
func (f *FileSystem) Run(ctx context.Context, ops []operations.Operation, progress func(done, total int)) operations.Report {
	lock, err := f.lock(ctx)
	if err != nil {
		return operations.RefusedReport(len(ops), ResultOf(err))
	}
	defer lock.Close()
	b, err := f.begin(ctx)
	if err != nil {
		return operations.RefusedReport(len(ops), ResultOf(err))
	}
	defer b.end()
	for _, op := range ops {
		b.newOwners[op.Volume] = b.newOwners[op.Volume] || op.AddsOwner()
	}
	report := operations.Report{Results: make([]operations.Result, len(ops))}
	for done, i := range order(ops) {
		report.Results[i] = b.do(ctx, ops[i])
		if progress != nil {
			progress(done+1, len(ops))
		}
	}
	return report
}

// order gives the positions of the operations in the order in which they are done: a path is left
// before it is taken, and owners that are only remembered go before what they block. Restores may have
// to search the trash, so setups do not wait for them, but for those of a path that a restore
// wants too: it needs the path empty, and they join it.
func order(ops []operations.Operation) []int {
	restored := map[string]bool{}
	positions := make([]int, len(ops))
	for i, op := range ops {
		positions[i] = i
		restored[op.Path] = restored[op.Path] || op.Kind == operations.Restore
	}
	kinds := []operations.Kind{operations.Release, operations.Cleanup, operations.Setup, operations.Restore}
	rank := func(i int) int {
		if kind := ops[i].Kind; kind != operations.Setup || !restored[ops[i].Path] {
			return slices.Index(kinds, kind)
		}
		return len(kinds)
	}
	slices.SortStableFunc(positions, func(a, b int) int { return rank(a) - rank(b) })
	return positions
}

// batch is what the operations of one Run share. It lives as long as the lock is held, so what
// it has read of the ledger stays true.
type batch struct {
	fs     *FileSystem
	tmp    *dir
	trash  *trash
	data   *tree // the directories of volumes, and those on the way to them
	ledger *ledger
	gids   *gids

	// newOwners are the volumes that operations of the batch make owners.
	newOwners map[string]bool

	// otherRecords are the records that findByClaim has read, by claim uid; nil until it has.
	otherRecords map[string][]*trashRecord
}

// tmpName is the directory, in wellknown.StateDirectory, of what is not yet in its place.
const tmpName = "tmp"

func (f *FileSystem) begin(ctx context.Context) (*batch, error) {
	b := &batch{fs: f, newOwners: map[string]bool{}}
	b.data = newTree(f.root, b.makeShared)
	err := b.open(ctx)
	if err == nil {
		err = b.emptyTmp(ctx)
	}
	if err != nil {
		b.end()
		return nil, err
	}
	return b, nil
}

func (b *batch) open(ctx context.Context) (err error) {
	if b.tmp, err = b.fs.state.ensure(ctx, tmpName); err != nil {
		return err
	}
	if b.trash, err = b.fs.openTrash(ctx); err != nil {
		return err
	}
	owners, err := b.fs.state.ensure(ctx, path.Base(wellknown.OwnersDirectory))
	if err != nil {
		return err
	}
	b.ledger = &ledger{batch: b, tree: newTree(owners, makePrivate), nodes: map[string]*node{}}
	allocated, err := b.fs.state.ensure(ctx, gidsName)
	b.gids = &gids{batch: b, dir: allocated, reclaimed: map[[2]int]bool{}}
	return err
}

// emptyTmp removes what runs left that died. This batch has the lock, so no other is at work there.
func (b *batch) emptyTmp(ctx context.Context) error {
	leftovers, err := b.tmp.names(ctx)
	for _, leftover := range leftovers {
		err = errors.Join(err, b.tmp.Remove(leftover))
	}
	if err != nil {
		return fmt.Errorf("emptying %s: %w", b.tmp.path, err)
	}
	return nil
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

func (b *batch) do(ctx context.Context, op operations.Operation) operations.Result {
	result, err := b.attempt(ctx, op)
	if err != nil {
		b.forget(err)
		return ResultOf(err)
	}
	b.data.trim()
	b.ledger.tree.trim()
	if b.trash.due != nil {
		b.trash.due.tree.trim()
	}
	return result
}

// forget drops what was read, after an error that leaves in doubt what was written. A refusal
// does not: in a batch with many, everything would be read again for each.
func (b *batch) forget(err error) {
	if r, ok := asRefusal(err); ok && r.Reason != operations.Changed {
		return
	}
	b.ledger.forget()
	b.data.forget("/")
}

func (b *batch) attempt(ctx context.Context, op operations.Operation) (operations.Result, error) {
	if err := b.fs.before(ctx, "begin "+string(op.Kind)); err != nil {
		return operations.Result{}, err
	}
	if err := operations.CheckPath(op.Path); err != nil {
		return operations.Result{}, refuse(operations.BadPath, "%v", err)
	}
	if err := op.Check(); err != nil {
		return operations.Result{}, refuse(operations.BadOperation, "%v", err)
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
	default:
		return operations.Result{}, refuse(operations.BadOperation, "no such kind") // Check has refused it
	}
}

// write puts a file in its place by a rename, so that no reader ever finds half of it, and what was
// there stays until then.
func (b *batch) write(ctx context.Context, to *dir, name string, value any) error {
	data, err := encode(value)
	if err == nil {
		err = b.fs.beforeGrowing(ctx, "write "+to.at(name))
	}
	half := unique("file")
	if err == nil {
		err = b.tmp.create(half, data)
	}
	if err == nil { // if this fails, the next batch empties tmp
		err = b.tmp.move(ctx, "place "+to.at(name), half, to, name)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", to.at(name), err)
	}
	return nil
}

// encode is the format of the files in wellknown.StateDirectory: JSON and a newline.
func encode(value any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return out.Bytes(), err
}
