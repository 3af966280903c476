// Package clone copies the directory of a volume aside, while batches go on, and publishes the copy by one rename.
package clone

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/batch"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/ledger"
)

// A clone has the lock of the file system only while it begins and while it publishes.
//
//	/.efs-stunnel/clones/<volume>/copy      the copy, until it is published
//	/.efs-stunnel/clones/<volume>/links/    a name for each file with several, by its number; notes, see note
//	/.efs-stunnel/clones/<volume>/begun     when its first run began
//	/.efs-stunnel/clones/<volume>/removed/  directories that are no part of the copy any more
//	/.efs-stunnel/clones/<volume>/lock      held by the run that copies
const (
	copyName    = "copy"
	linksName   = "links"
	removedName = "removed"
	begunName   = "begun"
)

// Options say how a volume is copied.
type Options struct {
	// Workers is how many entries are copied at once, and Rate how many requests begin in a second.
	Workers, Rate int // 0 is defaultWorkers and defaultRate
	// Started, if not nil, is called when the copying begins, with what says how far it is.
	Started func(progress func() operations.CloneProgress)
	// Ended, if not nil, is called when the run has ended.
	Ended batch.Observer
}

// Clone makes the operation's volume of a copy of another one, and goes on where an earlier run has stopped. What is
// complete by its size, time of change, mode and owner is not copied again, if it has not changed since the first run
// began or a note says that the copy is of that version.
//
//	owner entry  directory  what is done
//	none         none       the copy is completed, then entry and directory as a setup does it
//	own          none       the same (after a run that died, or a removal by hand)
//	own          there      nothing but removing what that run has left
//	none         there      refused
func Clone(ctx context.Context, f *fsroot.FileSystem, op operations.Operation, options Options) operations.Result {
	start := time.Now()
	o, err := run(ctx, f, op, options)
	if err != nil {
		o = batch.OutcomeOf(err)
	}
	if options.Ended != nil {
		options.Ended(op, o, time.Since(start))
	}
	return o.Result
}

func run(ctx context.Context, f *fsroot.FileSystem, op operations.Operation, options Options) (batch.Outcome, error) {
	if !op.Copies() {
		return batch.Outcome{}, fsroot.Refuse(operations.BadOperation, "%q is no clone", op.Kind)
	}
	c := &clone{System: f, op: op, options: options}
	defer c.close()
	published, err := c.prepare(ctx)
	if err != nil || published.State == operations.Done {
		return published, err
	}
	summary, err := c.copy(ctx)
	if err != nil {
		return batch.Outcome{}, err
	}
	return c.publish(ctx, summary)
}

type clone struct {
	System  *fsroot.FileSystem
	op      operations.Operation
	options Options

	source *os.File         // the directory that is copied
	place  *fsroot.Dir      // where the copy is made
	lock   *fsroot.HeldLock // of that place
	cut    bool             // the source itself was replaced while it was copied
}

func (c *clone) close() {
	_ = c.source.Close() // nothing was written to it
	if c.lock != nil {
		_ = c.lock.Close()
	}
	c.place.Close()
}

// prepare opens the source and the place of the copy, or finds the copy published.
func (c *clone) prepare(ctx context.Context) (published batch.Outcome, err error) {
	err = batch.Locked(ctx, c.System, func(b *batch.Batch) error {
		if err := b.Check(ctx, c.op); err != nil {
			return err
		}
		found, err := b.Occupancy(ctx, c.op)
		if err != nil {
			return err
		}
		is, err := c.isPublished(found)
		if err != nil {
			return err
		}
		if is {
			published = batch.DoneBy(batch.Cloned, operations.Result{GID: found.Own.GID})
			note, err := dropPlace(ctx, b, c.System, c.op.Volume)
			published.Message = strings.TrimPrefix(note, "; ")
			return err
		}
		if err := checkClone(ctx, b, c.op, found); err != nil {
			return err
		}
		if c.source, _, err = openSource(ctx, b, c.op); err != nil {
			return err
		}
		return c.openPlace(ctx)
	})
	if err != nil || published.State == operations.Done {
		return published, err
	}
	// Not in the lock of the file system: an earlier run may still have the place.
	if err := c.lock.Take(ctx); err != nil {
		return batch.Outcome{}, err
	}
	return batch.Outcome{}, c.checkPlace()
}

// checkClone refuses paths where no copy can be published. Unlike a setup, a clone never shares a directory.
func checkClone(ctx context.Context, b *batch.Batch, op operations.Operation, found ledger.Occupancy) error {
	err := b.CheckUnshared(ctx, op, found, found.All(), "a copy needs a path of its own")
	if err == nil && found.Info != nil {
		return fsroot.Refuse(operations.PathTaken, "%s is there already: a copy needs a path where nothing is", fsroot.Quote(op.Path))
	}
	return err
}

// openSource opens the directory that is copied, if the source owns it by the ledger, and gives its group.
func openSource(ctx context.Context, b *batch.Batch, op operations.Operation) (source *os.File, gid int, err error) {
	entries, err := b.Ledger.Entries(ctx, op.SourcePath)
	if err != nil {
		return nil, 0, err
	}
	isSource := func(e *ledger.Entry) bool {
		return e.Volume == op.SourceVolume && e.Cluster == op.Cluster && e.ClaimUID == op.SourceClaimUID && e.State != ledger.StateRetained
	}
	i := slices.IndexFunc(entries, isSource)
	if i < 0 {
		return nil, 0, sourceGone(op, "the ledger does not have that volume there")
	}
	switch e := entries[i]; {
	case e.State == ledger.StateLeaving:
		return nil, 0, sourceGone(op, "it is being removed")
	case e.Namespace != op.Namespace:
		return nil, 0, fsroot.Refuse(operations.OwnedByOtherNamespace, "%s %s: a claim can be copied in its own namespace only", fsroot.Quote(op.SourcePath), e.Relation()).Of(e.Owner())
	case e.IsOfEarlierNamespace(op.Owner):
		return nil, 0, fsroot.Refuse(operations.OwnedByOtherNamespace, "%s %s, of an earlier namespace: %s", fsroot.Quote(op.SourcePath), e.Relation(), batch.Recreated(op.Namespace)).Of(e.Owner())
	}
	d, err := b.Data.Dir(ctx, op.SourcePath)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, sourceGone(op, "the directory is not there")
	}
	if err != nil {
		return nil, 0, err
	}
	source, err = d.Open(".")
	return source, ledger.Occupancy{Own: entries[i], Others: entries}.Gid(), err
}

func sourceGone(op operations.Operation, why string) *fsroot.Refusal {
	return fsroot.Refuse(operations.SourceGone, "%s of claim %s (volume %s) cannot be copied: %s", fsroot.Quote(op.SourcePath), op.SourceClaim, op.SourceVolume, why)
}

func (c *clone) copy(ctx context.Context) (summary string, err error) {
	begun, err := c.begun(ctx)
	if err != nil {
		return "", err
	}
	linked, err := c.openFolder(ctx, linksName)
	if err != nil {
		return "", err
	}
	links := &linkTable{dir: linked}
	defer links.close()
	removed, err := c.openFolder(ctx, removedName)
	if err != nil {
		return "", err
	}
	defer removed.Close()
	copying := newCopying(c.System, begun, links, removed, c.options)
	copying.lock = c.lock
	if copying.started, err = c.System.ServerNow(ctx); err != nil {
		return "", err
	}
	if c.options.Started != nil {
		c.options.Started(copying.progress)
	}
	if err := c.empty(ctx, copying, removedName); err != nil { // of earlier runs, before more space is needed
		return "", err
	}
	to, err := c.openFolder(ctx, copyName)
	if err != nil {
		return "", err
	}
	from, err := fsroot.OpenAt(c.source, ".", os.O_RDONLY, 0)
	if err != nil {
		return "", errors.Join(fmt.Errorf("opening the source: %w", err), to.Close())
	}
	if c.cut, err = copying.run(ctx, from, to); err != nil {
		return "", err
	}
	if err := c.empty(ctx, copying, linksName, removedName); err != nil {
		return "", err
	}
	return copying.summary(c.op), nil
}

// summary is for the event about the claim.
func (c *copying) summary(op operations.Operation) string {
	text := fmt.Sprintf("copied %d files of claim %s", c.copied.Load(), op.SourceClaim)
	if n := c.devices.Load(); n > 0 {
		text += fmt.Sprintf("; %d devices were left out", n)
	}
	if n := c.changed.Load(); n > 0 {
		text += fmt.Sprintf("; %d files changed whenever they were copied", n)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leftOut > 0 {
		text += fmt.Sprintf("; %d entries were left out, which were replaced whenever they were copied: %s", c.leftOut, strings.Join(c.examples, ", "))
	}
	if c.leftOut > len(c.examples) {
		text += ", …"
	}
	return text
}

// publish enters the owner and moves the copy to its path, if source and path are still as they were.
func (c *clone) publish(ctx context.Context, summary string) (o batch.Outcome, err error) {
	err = batch.Locked(ctx, c.System, func(b *batch.Batch) error {
		if err := c.checkPlace(); err != nil {
			return err
		}
		found, err := b.Occupancy(ctx, c.op)
		if err != nil {
			return err
		}
		if err := checkClone(ctx, b, c.op, found); err != nil {
			return err
		}
		gid, err := c.checkSource(ctx, b)
		if err != nil {
			return err
		}
		if err := c.moveOut(ctx, b, found, gid); err != nil {
			return err
		}
		note, err := c.leave(ctx, b)
		o = batch.DoneBy(batch.Cloned, operations.Result{GID: gid, Message: summary + note})
		return err
	})
	return o, err
}

// checkSource makes sure that what was copied was the source's all the time: its directory is moved to the
// trash, and removed there, only after its entry has changed.
func (c *clone) checkSource(ctx context.Context, b *batch.Batch) (gid int, err error) {
	now, gid, err := openSource(ctx, b, c.op)
	if err != nil {
		return 0, err
	}
	defer now.Close()
	copied, err := c.source.Stat()
	there, nowErr := now.Stat()
	if err := errors.Join(err, nowErr); err != nil {
		return 0, fmt.Errorf("inspecting the source: %w", err)
	}
	if c.cut || !os.SameFile(copied, there) {
		return 0, fsroot.Replaced(c.op.SourcePath)
	}
	return gid, nil
}

func (c *clone) moveOut(ctx context.Context, b *batch.Batch, found ledger.Occupancy, gid int) error {
	e, err := b.Enter(ctx, c.op, found, gid)
	if err != nil {
		return err
	}
	if err := b.Place(ctx, c.op, "publish", c.place, copyName, c.lock); err != nil {
		return b.Withdraw(ctx, c.op, found, e, err)
	}
	return nil
}
