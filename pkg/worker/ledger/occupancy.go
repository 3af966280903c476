package ledger

import (
	"context"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

// Occupancy is what an operation finds at its path: the entries of the ledger, and the directory.
type Occupancy struct {
	Own      *Entry      // of the operation's volume; nil if it has none
	Leaving  *Entry      // of its cleanup that has begun: own, or beside own if a setup has died; nil if there is none
	Others   []*Entry    // of other owners; those that leave come last
	Retained []*Entry    // marks of retained data, which are no owners any more
	Info     fs.FileInfo // of the directory; nil if there is none, or if only owners were read
}

// Owners reads the entries of the operation's path.
func (l *Ledger) Owners(ctx context.Context, op operations.Operation) (Occupancy, error) {
	entries, err := l.Entries(ctx, op.Path)
	found := Occupancy{}
	for _, e := range entries {
		if e.Volume == op.Volume && e.State == StateLeaving {
			found.Leaving = e
		}
		switch {
		case e.State == StateRetained:
			found.Retained = append(found.Retained, e)
		case e.Volume != op.Volume:
			found.Others = append(found.Others, e)
		case found.Own == nil: // of two, the one that does not leave comes first
			found.Own = e
		}
	}
	return found, err
}

// All are the entries of other volumes.
func (o Occupancy) All() []*Entry { return slices.Concat(o.Others, o.Retained) }

// Gid is the group that belongs to the directory, as the ledger has it; 0 is none.
func (o Occupancy) Gid() int {
	for _, e := range append([]*Entry{o.Own}, o.All()...) {
		if e != nil && e.GID != 0 {
			return e.GID
		}
	}
	return 0
}

// IsOnly reports whether the directory of a path holds nothing but the entry e now, whatever was read before.
func (l *Ledger) IsOnly(ctx context.Context, p string, e *Entry) (bool, error) {
	d, err := l.Tree.Dir(ctx, p)
	if err != nil {
		return false, err
	}
	names, err := d.Names(ctx)
	// A directory that was removed, and may be there again, is not the one that was read.
	return len(names) == 1 && names[0] == e.FileName(), fsroot.IgnoreMissing(err)
}

// node is one directory of the ledger, as it was read.
type node struct {
	mu      sync.Mutex        // a node's is locked before that of its parent
	entries map[string]*Entry // by file name; nil is one that was not read yet; guarded by mu
	folders map[string]bool   // all other names; what is no directory after all is an empty node; nil until read; guarded by mu
}

func (n *node) change(do func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	do()
}

func (n *node) hasFolder(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.folders[name]
}

func (n *node) folderNames() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.folders))
}

func (n *node) isEmpty() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.entries) == 0 && len(n.folders) == 0
}

// ListOwners gives the entries of the ledger, by their paths, without the lock: what changes meanwhile may be missing.
func ListOwners(ctx context.Context, f *fsroot.FileSystem, emit func(requests.Owned) error) error {
	return EachOwner(ctx, f, func(l ListedEntry) error { return emit(l.Owned()) })
}

// EachOwner visits the entries of the ledger, without the lock.
func EachOwner(ctx context.Context, f *fsroot.FileSystem, visit func(ListedEntry) error) error {
	w := walk{workers: fsroot.DefaultSweepWorkers, request: func(context.Context, int) {}, readsEntries: true}
	w.visit = func(_ string, at folder) (more bool, err error) {
		for _, l := range at.entries {
			if err := visit(l); err != nil {
				return false, err
			}
		}
		return true, nil
	}
	return w.all(ctx, f)
}

// EachPath visits the paths that have an owner, without the lock, after a path in the order of comparePaths, until
// visit wants no more. request is called before requests to the server.
func EachPath(ctx context.Context, f *fsroot.FileSystem, after string, workers int, request func(ctx context.Context, count int), visit func(p string) (more bool)) error {
	w := walk{after: after, workers: workers, request: request}
	w.visit = func(p string, at folder) (bool, error) {
		isDue := at.owned && comparePaths(p, after) > 0 && operations.CheckPath(p) == nil
		return !isDue || visit(p), nil
	}
	return w.all(ctx, f)
}

// ListedEntry is an entry as a walk finds it.
type ListedEntry struct {
	Path     string
	Entry    *Entry // nil if it cannot be read
	Written  time.Time
	fileName string
}

// Owned describes an entry, and limits what it contains: root on the file system can write anything there.
func (l ListedEntry) Owned() requests.Owned {
	name := func(text string) string { return operations.Truncate(text, wellknown.MaxComponentBytes) }
	if l.Entry == nil {
		return requests.Owned{Path: l.Path, Volume: name(l.fileName), Unreadable: true}
	}
	e := l.Entry
	return requests.Owned{
		Path: l.Path, Volume: name(e.Volume), Cluster: name(e.Cluster), Namespace: name(e.Namespace), NamespaceUID: name(e.NamespaceUID),
		Class: name(e.Class), Claim: name(e.Claim), ClaimUID: name(e.ClaimUID), GID: e.GID, Made: e.Made, Reads: e.Reads, Since: e.When,
		Leaving: e.State == StateLeaving, Retained: e.State == StateRetained, TakenFrom: name(e.TakenFrom),
	}
}

// walk reads the ledger without the lock, beside batches, many directories at once: each is several round trips.
type walk struct {
	after        string // the path after which it begins; "" is all
	workers      int
	request      func(ctx context.Context, count int)
	readsEntries bool
	visit        func(p string, at folder) (more bool, err error)
}

type folder struct {
	dir     *fsroot.Dir // nil without folders
	owned   bool        // its path has an owner
	entries []ListedEntry
	folders []string
}

// foldersAtOnce is how many directories of the ledger are read ahead.
const foldersAtOnce = 64

func (w walk) all(ctx context.Context, f *fsroot.FileSystem) error {
	top, err := w.read(ctx, f.State, "/", path.Base(wellknown.OwnersDirectory))
	if err == nil {
		_, err = w.below(ctx, top, "/")
	}
	return err
}

// below visits a path and those below it. Paths that no volume can have are left out.
func (w walk) below(ctx context.Context, at folder, p string) (more bool, err error) {
	defer at.dir.Close()
	if more, err := w.visit(p, at); err != nil || !more {
		return false, err
	}
	due := slices.DeleteFunc(at.folders, func(name string) bool {
		below := path.Join(p, name)
		return len(below) > wellknown.MaxPathBytes || comparePaths(below, w.after) <= 0 && !fsroot.IsAtOrBelow(w.after, below)
	})
	for names := range slices.Chunk(due, foldersAtOnce) {
		read := make([]folder, len(names))
		err := fsroot.InParallel(ctx, w.workers, len(names), func(i int) (err error) {
			read[i], err = w.read(ctx, at.dir, path.Join(p, names[i]), names[i])
			return err
		})
		more = true
		for i := range read {
			if err == nil && more {
				more, err = w.below(ctx, read[i], path.Join(p, names[i]))
			} else {
				read[i].dir.Close()
			}
		}
		if err != nil || !more {
			return false, err
		}
	}
	return true, nil
}

// read reads the directory of a path. What is none, or was removed meanwhile, has nothing in it.
func (w walk) read(ctx context.Context, parent *fsroot.Dir, p, name string) (at folder, err error) {
	w.request(ctx, 5)
	d, err := parent.Enter(ctx, name)
	if _, refused := fsroot.AsRefusal(err); refused || fsroot.IsGone(err) {
		return folder{}, nil
	}
	if err != nil {
		return folder{}, err
	}
	names, err := d.Names(ctx)
	slices.Sort(names)
	for _, name := range names {
		switch isEntry := strings.HasPrefix(name, wellknown.OwnerPrefix); {
		case !isEntry:
			at.folders = append(at.folders, name)
		case w.readsEntries && err == nil:
			err = at.readEntry(d, p, name)
		case !strings.HasSuffix(name, string(StateRetained)):
			at.owned = true
		}
	}
	if at.dir = d; err != nil || len(at.folders) == 0 {
		d.Close()
		at.dir = nil
	}
	if fsroot.IsGone(err) {
		return folder{}, nil
	}
	return at, err
}

// readEntry leaves out an entry that was removed meanwhile.
func (at *folder) readEntry(d *fsroot.Dir, p, name string) error {
	data, written, err := d.ReadSmall(name)
	if err != nil {
		if fsroot.IsGone(err) {
			return nil
		}
		return err
	}
	e, _ := ParseEntry(name, data) // nil if it cannot be read
	at.entries = append(at.entries, ListedEntry{Path: p, fileName: name, Entry: e, Written: written})
	return nil
}

// comparePaths orders paths by their components, so that a directory is next to what is in it.
func comparePaths(a, b string) int {
	return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
}
