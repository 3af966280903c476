package directories

import (
	"context"
	"encoding/json"
	"strconv"

	"gnuthought.com/efs-stunnel/pkg/operations"
)

// gidsName is the directory, in wellknown.StateDirectory, that has a file for each allocated gid.
const gidsName = "gids"

// gids allocates groups for directories. A file is made for a gid before a result names it, and
// stays as long as the range has others: data that was released, or lies in the trash, still has
// its gid. So one listing says what is free, however many volumes there are.
type gids struct {
	batch     *batch
	dir       *dir
	allocated map[int]bool    // nil until listed
	reclaimed map[[2]int]bool // ranges; reading ledger and trash once for a batch is enough
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
	if err := b.gids.list(ctx); err != nil {
		return 0, err
	}
	if found.info == nil {
		return b.gids.allocate(ctx, op)
	}
	// A directory that exists keeps its group, and it is worth reporting only if it looks like
	// an allocated one.
	lowest, highest := op.GIDRange()
	gid := groupOf(found.info)
	if gid < lowest || gid > highest {
		return 0, nil
	}
	if b.gids.allocated[gid] {
		return gid, nil
	}
	return gid, b.gids.record(ctx, gid, op)
}

func (g *gids) list(ctx context.Context) error {
	if g.allocated != nil {
		return nil
	}
	names, err := g.dir.names(ctx)
	if err != nil {
		return err
	}
	g.allocated = map[int]bool{}
	for _, name := range names {
		if gid, err := strconv.Atoi(name); err == nil {
			g.allocated[gid] = true
		}
	}
	return nil
}

// allocate takes the gid after the highest one; lower ones are taken again only when the range is
// used up.
func (g *gids) allocate(ctx context.Context, op operations.Operation) (int, error) {
	lowest, highest := op.GIDRange()
	top := lowest - 1
	for gid := range g.allocated {
		if gid >= lowest && gid <= highest {
			top = max(top, gid)
		}
	}
	if top >= lowest && g.isFor(top, op) {
		return top, nil // the last run died between this and the owner's entry
	}
	if top < highest {
		return top + 1, g.record(ctx, top+1, op)
	}
	gid, ok := g.lowestFree(lowest, highest)
	if !ok {
		if err := g.reclaim(ctx, lowest, highest); err != nil {
			return 0, err
		}
		if gid, ok = g.lowestFree(lowest, highest); !ok {
			return 0, refuse(operations.GIDsExhausted, "every gid from %d to %d is in use on this file system: raise gidMax in the class, or delete volumes and what is left of them", lowest, highest)
		}
	}
	return gid, g.record(ctx, gid, op)
}

func (g *gids) lowestFree(lowest, highest int) (gid int, ok bool) {
	for gid = lowest; gid <= highest; gid++ {
		if !g.allocated[gid] {
			return gid, true
		}
	}
	return 0, false
}

func (g *gids) record(ctx context.Context, gid int, op operations.Operation) error {
	if err := g.batch.write(ctx, g.dir, strconv.Itoa(gid), allocation{op.Volume, op.Path}); err != nil {
		return err
	}
	g.allocated[gid] = true
	return nil
}

// moveTo records the gid of a directory that a restore moves to another path, so that it is not
// taken for free.
func (g *gids) moveTo(ctx context.Context, gid int, op operations.Operation) error {
	if gid == 0 {
		return nil
	}
	if err := g.list(ctx); err != nil || g.isFor(gid, op) {
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
// read.
func (g *gids) reclaim(ctx context.Context, lowest, highest int) error {
	if g.reclaimed[[2]int{lowest, highest}] {
		return nil
	}
	used, err := g.used(ctx)
	if err != nil {
		return err
	}
	for gid := range g.allocated {
		if gid < lowest || gid > highest || used[gid] {
			continue
		}
		retained, err := g.isRetained(ctx, gid)
		if err != nil {
			return err
		}
		if retained {
			continue
		}
		if err := g.dir.remove(ctx, strconv.Itoa(gid)); err != nil {
			return err
		}
		delete(g.allocated, gid)
	}
	g.reclaimed[[2]int{lowest, highest}] = true
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
	all := func(string) bool { return true }
	err = g.batch.trash.eachRecord(ctx, all, func(r *trashRecord) { used[r.Owner.GID] = true })
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
