package directories

import (
	"errors"
	"io/fs"
	"os"
)

// branch is one directory on its way out.
type branch struct {
	parent *branch // nil for the top, which stays
	name   string
	depth  int
	folder *os.Root // nil until entered
	list   *os.File // nil unless it is being read
	holds  int      // guarded by removal.mu; reading, clearing and children that are not over
	passes int      // how often it was read to its end
	failed bool     // guarded by removal.mu; it stays
}

// hold keeps a branch from going; letGo ends one hold, and with the last the branch goes, which
// may let its parent go.
func (r *removal) hold(b *branch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b.holds++
}

func (r *removal) letGo(b *branch) {
	for ; b != nil; b = b.parent {
		r.mu.Lock()
		b.holds--
		last := b.holds == 0 && !r.over
		r.mu.Unlock()
		if !last || !r.goes(b) {
			return
		}
	}
}

// goes removes an emptied branch. One that is not empty after all is read again: somebody still
// writes there, or the server's listing jumped because of what was removed.
func (r *removal) goes(b *branch) bool {
	b.passes++
	if b.parent == nil {
		r.again(b)
		return false
	}
	if !r.hasFailed(b) {
		err := b.parent.folder.Remove(b.name)
		if errors.Is(err, fs.ErrExist) && b.passes < maxPasses {
			r.push(b)
			return false
		}
		r.count(err)
		r.fail(b, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	closeRoot(b.folder)
	delete(r.entered, b)
	return true
}

// again reads the top until nothing is lifted to it any more. What failed stays there.
func (r *removal) again(top *branch) {
	empty, err := isEmpty(top.folder, top.name)
	r.fail(top, err)
	if err == nil && !empty && !r.hasFailed(nil) {
		r.push(top)
	}
}
