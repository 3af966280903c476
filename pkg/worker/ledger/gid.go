package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"iter"
	"math/rand/v2"
	"strconv"
	"sync"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

// GidsName is the directory, in wellknown.StateDirectory, that has a file for each allocated gid.
const GidsName = "gids"

// Gids allocates groups for directories. Creating the file of a gid allocates it, so setups allocate side by side. The
// file stays as long as the range has others: data that was released, or lies in the trash, still has its gid.
type Gids struct {
	Dir     *fsroot.Dir
	ledger  *Ledger
	trashed func(ctx context.Context, use func(gid int)) error // gives the gids of what is in the trash
	isAlone func() bool                                        // reports whether no other operation runs

	mu        sync.Mutex
	listed    map[gidRange]map[int]bool // what is allocated of crowded ranges; guarded by mu
	reclaimed map[gidRange]bool         // reading ledger and trash once for a batch is enough; guarded by mu
}

// ErrAlone ends an operation that can only be done while no other one runs. It starts over.
var ErrAlone = errors.New("this operation must run alone")

type gidRange struct{ lowest, highest int }

func (r gidRange) has(gid int) bool { return gid >= r.lowest && gid <= r.highest }

func rangeOf(op operations.Operation) gidRange {
	lowest, highest := op.GIDRange()
	return gidRange{lowest, highest}
}

// NewGIDs opens the gids in a directory.
func NewGIDs(d *fsroot.Dir, l *Ledger, trashed func(context.Context, func(int)) error, isAlone func() bool) *Gids {
	return &Gids{Dir: d, ledger: l, trashed: trashed, isAlone: isAlone, listed: map[gidRange]map[int]bool{}, reclaimed: map[gidRange]bool{}}
}

type allocation struct {
	Volume string `json:"volume"`
	Path   string `json:"path"`
}

// candidates of a range, always in the same order: an operation whose last run died between the gid and the owner's
// entry finds its gid again. Low ones come first: pods with a user namespace have no groups above 65,535.
func (a allocation) candidates(wanted gidRange) iter.Seq[int] {
	hash := fnv.New64a()
	_, _ = io.WriteString(hash, a.Volume+"\x00"+a.Path) // never fails
	numbers := rand.New(rand.NewPCG(hash.Sum64(), 0))
	return func(yield func(int) bool) {
		for try := range gidTries {
			lowest := min(wanted.highest-wanted.lowest+1, firstGIDs<<(2*try))
			if !yield(wanted.lowest + numbers.IntN(lowest)) {
				return
			}
		}
	}
}

const (
	// firstGIDs is the number of lowest gids that the first try chooses from; each later try chooses from four times as many.
	firstGIDs = 4096
	// gidTries suffice in every range that is not crowded: of ranges that are half full, one of 65,000 tries in a row fails.
	gidTries = 16
)

// Allocate allocates a gid for the directory of an operation.
func (g *Gids) Allocate(ctx context.Context, op operations.Operation) (int, error) {
	mine, wanted := allocation{op.Volume, op.Path}, rangeOf(op)
	for gid := range mine.candidates(wanted) {
		if taken, err := g.take(ctx, gid, mine); taken || err != nil {
			return gid, err
		}
	}
	return g.search(ctx, mine, wanted)
}

// Adopt records the gid of a directory that exists, unless it is recorded. The gid is none to report, and so 0, if it
// does not look like an allocated one.
func (g *Gids) Adopt(ctx context.Context, gid int, op operations.Operation) (int, error) {
	if !rangeOf(op).has(gid) {
		return 0, nil
	}
	_, err := g.take(ctx, gid, allocation{op.Volume, op.Path})
	return gid, err
}

// take creates the file of a gid, unless it is another's. The file needs no rename: its name says that the gid is
// allocated, and one that was cut off is that of no operation.
func (g *Gids) take(ctx context.Context, gid int, mine allocation) (taken bool, err error) {
	name := strconv.Itoa(gid)
	data, err := operations.MarshalLine(mine)
	if err == nil {
		err = g.Dir.System.BeforeGrowing(ctx, "write "+g.Dir.At(name))
	}
	if err == nil {
		err = g.Dir.CreateWhole(name, data)
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		return g.read(gid) == mine, nil
	case err != nil:
		return false, fmt.Errorf("writing %s: %w", g.Dir.At(name), err)
	}
	return true, nil
}

// search takes the lowest gid of a crowded range, or one that no directory has any more.
func (g *Gids) search(ctx context.Context, mine allocation, wanted gidRange) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, prepare := range []func(context.Context, gidRange) error{g.list, g.reclaim} {
		if err := prepare(ctx, wanted); err != nil {
			return 0, err
		}
		if gid, found, err := g.takeLowest(ctx, mine, wanted); err != nil || found {
			return gid, err
		}
	}
	return 0, fsroot.Refuse(operations.GIDsExhausted, "every gid from %d to %d is in use on this file system: raise gidMax in the class, or delete volumes and what is left of them", wanted.lowest, wanted.highest)
}

func (g *Gids) takeLowest(ctx context.Context, mine allocation, wanted gidRange) (gid int, found bool, err error) {
	listed := g.listed[wanted]
	for gid := wanted.lowest; gid <= wanted.highest; gid++ {
		if listed[gid] {
			continue
		}
		found, err := g.take(ctx, gid, mine)
		listed[gid] = err == nil
		if found || err != nil {
			return gid, found, err
		}
	}
	return 0, false, nil
}

// list reads once for a batch which gids of a range are allocated. The caller holds mu.
func (g *Gids) list(ctx context.Context, wanted gidRange) error {
	if g.listed[wanted] != nil {
		return nil
	}
	listed := map[int]bool{}
	err := g.Dir.EachName(ctx, func(names []string) error {
		for _, name := range names {
			if gid, err := strconv.Atoi(name); err == nil && wanted.has(gid) {
				listed[gid] = true
			}
		}
		return nil
	})
	if err == nil {
		g.listed[wanted] = listed
	}
	return err
}

// MoveTo records the gid of a directory that a restore moves to another path, so that it is not
// taken for free.
func (g *Gids) MoveTo(ctx context.Context, gid int, op operations.Operation) error {
	mine := allocation{op.Volume, op.Path}
	if gid == 0 || g.read(gid) == mine {
		return nil
	}
	return g.ledger.tmp.Write(ctx, g.Dir, strconv.Itoa(gid), mine)
}

// read returns the allocation of a gid. A file that cannot be read gives the zero value: that of no operation.
func (g *Gids) read(gid int) allocation {
	var a allocation
	data, _, err := g.Dir.ReadSmall(strconv.Itoa(gid))
	if err == nil {
		err = json.Unmarshal(data, &a)
	}
	if err != nil || operations.CheckPath(a.Path) != nil {
		return allocation{}
	}
	return a
}

// reclaim frees the gids that no directory has any more. It reads the whole ledger, while no operation changes it or
// has a gid without an owner's entry. The caller holds mu.
func (g *Gids) reclaim(ctx context.Context, wanted gidRange) error {
	if g.reclaimed[wanted] {
		return nil
	}
	if !g.isAlone() {
		return ErrAlone
	}
	used, err := g.used(ctx)
	if err != nil {
		return err
	}
	for gid := range g.listed[wanted] {
		if used[gid] {
			continue
		}
		retained, err := g.isRetained(ctx, gid)
		if retained && err == nil {
			continue
		}
		if err == nil {
			err = g.ledger.tmp.Lock.Check()
		}
		if err != nil {
			return err
		}
		if err := g.Dir.RemoveEntry(ctx, strconv.Itoa(gid)); err != nil {
			return err
		}
		delete(g.listed[wanted], gid)
	}
	g.reclaimed[wanted] = true
	return nil
}

func (g *Gids) used(ctx context.Context) (map[int]bool, error) {
	used := map[int]bool{}
	_, err := g.ledger.walk(ctx, "/", func(p string) (bool, error) {
		entries, err := g.ledger.Entries(ctx, p)
		for _, e := range entries {
			used[e.GID] = true
		}
		return true, err
	})
	if err != nil {
		return nil, err
	}
	err = g.trashed(ctx, func(gid int) { used[gid] = true })
	return used, err
}

// isRetained reports whether the directory of a gid is still there with that group, though no volume owns it.
func (g *Gids) isRetained(ctx context.Context, gid int) (bool, error) {
	p := g.read(gid).Path
	if p == "" {
		return false, nil
	}
	info, err := g.ledger.data.Inspect(ctx, p)
	if _, ok := fsroot.AsRefusal(err); ok {
		return true, nil // something is there; better a gid too few
	}
	return info != nil && fsroot.GroupOf(info) == gid, err
}
