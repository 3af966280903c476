package directories

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strconv"
	"sync"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// gidsName is the directory, in wellknown.StateDirectory, that has a file for each allocated gid.
const gidsName = "gids"

// gids allocates groups for directories. A file is made for a gid before a result names it, and
// stays as long as the range has others: data that was released, or lies in the trash, still has
// its gid. So one listing says what is free, however many volumes there are.
//
// Setups allocate side by side. A gid is reserved under mu, before its file is written.
type gids struct {
	batch *batch
	dir   *dir

	mu        sync.Mutex
	allocated gidSet             // with those that are reserved; nil until listed; guarded by mu
	of        map[allocation]int // for whom gids were allocated, of those that a run may have left unused; guarded by mu
	searched  map[gidRange]bool  // ranges whose last files were read; guarded by mu
	reclaimed map[gidRange]bool  // reading ledger and trash once for a batch is enough; guarded by mu
}

type gidRange struct{ lowest, highest int }

func (r gidRange) has(gid int) bool { return gid >= r.lowest && gid <= r.highest }

func rangeOf(op operations.Operation) gidRange {
	lowest, highest := op.GIDRange()
	return gidRange{lowest, highest}
}

func newGIDs(b *batch, d *dir) *gids {
	return &gids{batch: b, dir: d, of: map[allocation]int{}, searched: map[gidRange]bool{}, reclaimed: map[gidRange]bool{}}
}

// allocation says for whom a gid was allocated.
type allocation struct {
	Volume string `json:"volume"`
	Path   string `json:"path"`
}

// gidFor is the group that a setup reports: the directory's own, if it has one.
func (b *batch) gidFor(ctx context.Context, op operations.Operation, found occupancy) (int, error) {
	if gid := found.gid(); gid != 0 {
		return gid, nil
	}
	if !op.AllocateGID {
		return 0, nil
	}
	if found.info == nil {
		return b.gids.allocate(ctx, op)
	}
	// A directory that exists keeps its group, and it is worth reporting only if it looks like
	// an allocated one.
	gid := groupOf(found.info)
	if !rangeOf(op).has(gid) {
		return 0, nil
	}
	return gid, b.gids.adopt(ctx, gid, op)
}

// list reads which gids are allocated. The caller holds mu.
func (g *gids) list(ctx context.Context) error {
	if g.allocated != nil {
		return nil
	}
	listed := gidSet{}
	err := g.dir.eachName(ctx, func(names []string) error {
		for _, name := range names {
			if gid, err := strconv.Atoi(name); err == nil && gid >= 0 {
				listed.add(gid)
			}
		}
		return nil
	})
	if err == nil {
		g.allocated = listed
	}
	return err
}

func (g *gids) allocate(ctx context.Context, op operations.Operation) (int, error) {
	for {
		gid, recorded, err := g.reserve(ctx, op)
		if err != nil || recorded {
			return gid, err
		}
		// A file that was not listed is that of a Job which took over the lock of this one.
		if err := g.recordReserved(ctx, gid, op); !errors.Is(err, fs.ErrExist) {
			return gid, err
		}
	}
}

// adopt records the gid of a directory that exists, unless it is recorded.
func (g *gids) adopt(ctx context.Context, gid int, op operations.Operation) error {
	added, err := g.add(ctx, gid)
	if err != nil || !added {
		return err
	}
	if err := g.recordReserved(ctx, gid, op); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func (g *gids) add(ctx context.Context, gid int) (added bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.list(ctx); err != nil || g.allocated.has(gid) {
		return false, err
	}
	g.allocated.add(gid)
	return true, nil
}

// reserve takes the gid after the highest one; lower ones are taken again only when the range is
// used up. It gives a recorded one again to an operation whose last run died between that and the owner's
// entry.
func (g *gids) reserve(ctx context.Context, op operations.Operation) (gid int, recorded bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.list(ctx); err != nil {
		return 0, false, err
	}
	wanted := rangeOf(op)
	if err := g.searchUnused(ctx, wanted); err != nil {
		return 0, false, err
	}
	if gid, ok := g.of[allocation{op.Volume, op.Path}]; ok && wanted.has(gid) {
		return gid, true, nil
	}
	gid, err = g.free(ctx, wanted)
	if err == nil {
		g.allocated.add(gid)
	}
	return gid, false, err
}

// free finds a gid that is not allocated. The caller holds mu.
func (g *gids) free(ctx context.Context, wanted gidRange) (int, error) {
	if top := g.allocated.highest(wanted); top < wanted.highest {
		return top + 1, nil
	}
	if gid, ok := g.lowestFree(wanted); ok {
		return gid, nil
	}
	if err := g.reclaim(ctx, wanted); err != nil {
		return 0, err
	}
	if gid, ok := g.lowestFree(wanted); ok {
		return gid, nil
	}
	return 0, refuse(operations.GIDsExhausted, "every gid from %d to %d is in use on this file system: raise gidMax in the class, or delete volumes and what is left of them", wanted.lowest, wanted.highest)
}

func (g *gids) lowestFree(wanted gidRange) (gid int, ok bool) {
	for gid = wanted.lowest; gid <= wanted.highest; gid++ {
		if !g.allocated.has(gid) {
			return gid, true
		}
	}
	return 0, false
}

// searchUnused reads for whom the last gids of a range were allocated: a run that died may have left as
// many without an owner's entry as it did operations at once. The caller holds mu.
func (g *gids) searchUnused(ctx context.Context, wanted gidRange) error {
	if g.searched[wanted] {
		return nil
	}
	top := g.allocated.highest(wanted)
	last := make([]allocation, min(DefaultWorkers, top-wanted.lowest+1))
	err := inParallel(ctx, len(last), len(last), func(i int) error {
		if g.allocated.has(top - i) {
			last[i] = g.read(top - i)
		}
		return nil
	})
	for i, a := range last {
		if a != (allocation{}) {
			g.of[a] = top - i
		}
	}
	g.searched[wanted] = err == nil
	return err
}

// recordReserved creates the file of a reserved gid, or frees the gid, unless the file is there: then
// the gid is taken. The file needs no rename: its name says that the gid is allocated, and one that was
// cut off is that of no operation.
func (g *gids) recordReserved(ctx context.Context, gid int, op operations.Operation) error {
	name := strconv.Itoa(gid)
	data, err := encode(allocation{op.Volume, op.Path})
	if err == nil {
		err = g.batch.fs.beforeGrowing(ctx, "write "+g.dir.at(name))
	}
	if err == nil {
		err = g.dir.create(name, data)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrExist) {
			g.release(gid)
		}
		return fmt.Errorf("writing %s: %w", g.dir.at(name), err)
	}
	g.note(gid, op)
	return nil
}

func (g *gids) release(gid int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.allocated.remove(gid)
}

// record writes the file of a gid, in place of another one.
func (g *gids) record(ctx context.Context, gid int, op operations.Operation) error {
	if err := g.batch.write(ctx, g.dir, strconv.Itoa(gid), allocation{op.Volume, op.Path}); err != nil {
		return err
	}
	g.note(gid, op)
	return nil
}

// note keeps in memory for whom a gid was allocated.
func (g *gids) note(gid int, op operations.Operation) {
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.of, func(_ allocation, recorded int) bool { return recorded == gid })
	g.of[allocation{op.Volume, op.Path}] = gid
}

// moveTo records the gid of a directory that a restore moves to another path, so that it is not
// taken for free.
func (g *gids) moveTo(ctx context.Context, gid int, op operations.Operation) error {
	if gid == 0 {
		return nil
	}
	if g.isFor(gid, op) {
		return nil
	}
	if _, err := g.add(ctx, gid); err != nil {
		return err
	}
	return g.record(ctx, gid, op)
}

// read says for whom a gid was allocated. A file that cannot be read gives the zero value, which is
// that of no operation.
func (g *gids) read(gid int) allocation {
	var a allocation
	data, _, err := g.dir.read(strconv.Itoa(gid))
	if err == nil {
		err = json.Unmarshal(data, &a)
	}
	if err != nil || operations.CheckPath(a.Path) != nil {
		return allocation{}
	}
	return a
}

func (g *gids) isFor(gid int, op operations.Operation) bool {
	return g.read(gid) == allocation{op.Volume, op.Path}
}

// reclaim frees the gids of a range that no directory has any more. Only here the whole ledger is
// read, while no operation changes it or has a gid without an owner's entry. The caller holds mu.
func (g *gids) reclaim(ctx context.Context, wanted gidRange) error {
	if g.reclaimed[wanted] {
		return nil
	}
	if !g.batch.alone {
		return errAlone
	}
	used, err := g.used(ctx)
	if err != nil {
		return err
	}
	for gid := range g.allocated.in(wanted) {
		if used[gid] {
			continue
		}
		retained, err := g.isRetained(ctx, gid)
		if err != nil {
			return err
		}
		if retained {
			continue
		}
		if err := g.batch.lock.check(); err != nil {
			return err
		}
		if err := g.dir.remove(ctx, strconv.Itoa(gid)); err != nil {
			return err
		}
		g.allocated.remove(gid)
		maps.DeleteFunc(g.of, func(_ allocation, recorded int) bool { return recorded == gid })
	}
	g.reclaimed[wanted] = true
	return nil
}

// used are the gids of owners and of what is in the trash.
func (g *gids) used(ctx context.Context) (map[int]bool, error) {
	used := map[int]bool{}
	_, err := g.batch.ledger.walk(ctx, "/", func(p string) (bool, error) {
		entries, err := g.batch.ledger.entries(ctx, p)
		for _, e := range entries {
			used[e.GID] = true
		}
		return true, err
	})
	if err != nil {
		return nil, err
	}
	err = g.batch.trash.eachRecord(ctx, func(r *trashRecord) { used[r.Owner.GID] = true })
	return used, err
}

// isRetained reports whether the directory for which a gid was allocated is still there with that
// group, though no volume owns it.
func (g *gids) isRetained(ctx context.Context, gid int) (bool, error) {
	p := g.read(gid).Path
	if p == "" {
		return false, nil
	}
	info, err := g.batch.data.stat(ctx, p)
	if _, ok := asRefusal(err); ok {
		return true, nil // something is there; better a gid too few
	}
	return info != nil && groupOf(info) == gid, err
}
