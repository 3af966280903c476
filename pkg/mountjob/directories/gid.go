package directories

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"

	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// gidsName is the directory, in ours, that has a file for each gid that was given.
const gidsName = "gids"

// gids gives groups to directories. A file is made for a gid before anybody hears of it, and
// stays as long as the range has others: data that was released, or lies in the trash, still has
// its gid. So one listing says what is free, however many volumes there are.
type gids struct {
	batch  *batch
	folder *os.Root
	given  map[int]bool // nil until listed

	reclaimed map[[2]int]bool // ranges; reading the trash once for a batch is enough
}

// grant says for whom a gid was given.
type grant struct {
	Volume string `json:"volume"`
	Path   string `json:"path"`
}

// gidFor is the group that a setup reports: the directory's own, if it has one.
func (b *batch) gidFor(ctx context.Context, op operations.Operation, s site) (int, error) {
	if gid := s.gid(); gid != 0 {
		return gid, nil
	}
	if !op.AllocateGID {
		return 0, nil
	}
	if s.info == nil {
		return b.gids.allocate(ctx, op)
	}
	// A directory that exists keeps its group, and it is worth reporting only if it looks like
	// an allocated one.
	lowest, highest := op.GIDRange()
	gid := groupOf(s.info)
	if gid < lowest || gid > highest {
		return 0, nil
	}
	return gid, b.gids.grant(ctx, gid, op)
}

// allocate takes the gid after the highest one; lower ones come again only when the range is
// used up.
func (g *gids) allocate(ctx context.Context, op operations.Operation) (int, error) {
	if err := g.list(); err != nil {
		return 0, err
	}
	lowest, highest := op.GIDRange()
	top := g.top(lowest, highest)
	if g.given[top] && g.isFor(top, op) {
		return top, nil // the last run died between this and the owner's entry
	}
	next := top + 1
	if top == 0 {
		next = lowest
	}
	if next > highest {
		var err error
		if next, err = g.free(ctx, lowest, highest); err != nil {
			return 0, err
		}
	}
	return next, g.grant(ctx, next, op)
}

// top is the highest gid of the range that was given, or 0.
func (g *gids) top(lowest, highest int) int {
	top := 0
	for gid := range g.given {
		if gid >= lowest && gid <= highest {
			top = max(top, gid)
		}
	}
	return top
}

// free finds a gid in a range whose end was reached.
func (g *gids) free(ctx context.Context, lowest, highest int) (int, error) {
	if gid, ok := g.hole(lowest, highest); ok {
		return gid, nil
	}
	if err := g.reclaim(ctx, lowest, highest); err != nil {
		return 0, err
	}
	if gid, ok := g.hole(lowest, highest); ok {
		return gid, nil
	}
	return 0, refuse(operations.GIDsExhausted, "every gid from %d to %d is in use on this file system: raise gidMax in the class, or delete volumes and what is left of them", lowest, highest)
}

func (g *gids) hole(lowest, highest int) (gid int, ok bool) {
	for gid = lowest; gid <= highest; gid++ {
		if !g.given[gid] {
			return gid, true
		}
	}
	return 0, false
}

// grant records that a gid belongs to a path, unless it is recorded.
func (g *gids) grant(ctx context.Context, gid int, op operations.Operation) error {
	if err := g.list(); err != nil || g.given[gid] {
		return err
	}
	return g.record(ctx, gid, grant{Volume: op.Volume, Path: op.Path})
}

func (g *gids) record(ctx context.Context, gid int, to grant) error {
	data, err := encode(to)
	if err != nil {
		return err
	}
	name := strconv.Itoa(gid)
	if err := g.batch.writeFile(ctx, g.folder, name, g.at(name), data); err != nil {
		return err
	}
	g.given[gid] = true
	return nil
}

func (g *gids) list() error {
	if g.given != nil {
		return nil
	}
	listed, err := names(g.folder, g.at(""))
	if err != nil {
		return err
	}
	given := map[int]bool{}
	for _, name := range listed {
		if gid, err := strconv.Atoi(name); err == nil {
			given[gid] = true
		}
	}
	g.given = given
	return nil
}

// read says for whom a gid was given. A file that cannot be read gives the zero value, which no
// operation matches.
func (g *gids) read(gid int) grant {
	var to grant
	name := strconv.Itoa(gid)
	data, err := readFile(g.folder, name, g.at(name))
	if err == nil {
		err = json.Unmarshal(data, &to)
	}
	if err != nil || operations.CheckPath(to.Path) != nil {
		return grant{}
	}
	return to
}

func (g *gids) isFor(gid int, op operations.Operation) bool {
	return g.read(gid) == grant{Volume: op.Volume, Path: op.Path}
}

// reclaim frees the gids of a range that nothing has any more. Only here the whole ledger is
// read.
func (g *gids) reclaim(ctx context.Context, lowest, highest int) error {
	if g.reclaimed[[2]int{lowest, highest}] {
		return nil
	}
	used, err := g.used(ctx)
	if err != nil {
		return err
	}
	for gid := range g.given {
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
		name := strconv.Itoa(gid)
		if err := g.batch.fs.before(ctx, "free "+g.at(name)); err != nil {
			return err
		}
		if err := g.folder.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("freeing the gid %d: %w", gid, err)
		}
		delete(g.given, gid)
	}
	g.reclaimed[[2]int{lowest, highest}] = true
	return nil
}

// used are the gids of owners and of what is in the trash.
func (g *gids) used(ctx context.Context) (map[int]bool, error) {
	used := map[int]bool{}
	err := g.batch.ledger.each(ctx, "/", func(e *entry) { used[e.GID] = true })
	if err != nil {
		return nil, err
	}
	all := func(string) bool { return true }
	err = g.batch.eachRecord(ctx, all, func(r *trashRecord) { used[r.Owner.GID] = true })
	return used, err
}

// isRetained says whether the directory for which a gid was given is still there with it, though
// nobody owns it.
func (g *gids) isRetained(ctx context.Context, gid int) (bool, error) {
	p := g.read(gid).Path
	if p == "" {
		return false, nil
	}
	info, err := g.batch.data.look(ctx, p)
	if refusal := (*failure)(nil); errors.As(err, &refusal) {
		return true, nil // something is there; better a gid too few
	}
	return info != nil && groupOf(info) == gid, err
}

func (g *gids) at(name string) string { return path.Join(wellknown.StateDirectory, gidsName, name) }
