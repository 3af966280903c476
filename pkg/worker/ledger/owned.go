package ledger

import (
	"context"
	"path"
	"slices"
	"strings"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

// OwnedWalk visits the paths that have an owner. It reads the ledger without the lock, so batches may change it
// meanwhile.
type OwnedWalk struct {
	After   string // the path after which it begins; "" is all
	Workers int
	Request func(ctx context.Context, count int) // called before requests to the server
}

// ownedFolder is a directory of the ledger, as a walk reads it.
type ownedFolder struct {
	dir     *fsroot.Dir // nil without folders
	owned   bool        // its path has an owner
	folders []string
}

// foldersAtOnce is how many directories of the ledger are read ahead.
const foldersAtOnce = 64

// Each visits the paths in the order of comparePaths, until visit wants no more.
func (w OwnedWalk) Each(ctx context.Context, f *fsroot.FileSystem, visit func(p string) bool) error {
	top, err := w.read(ctx, f.State, path.Base(wellknown.OwnersDirectory))
	if err == nil {
		_, err = w.eachBelow(ctx, top, "/", visit)
	}
	return err
}

func (w OwnedWalk) eachBelow(ctx context.Context, at ownedFolder, p string, visit func(p string) bool) (more bool, err error) {
	defer at.dir.Close()
	if at.owned && comparePaths(p, w.After) > 0 && operations.CheckPath(p) == nil && !visit(p) {
		return false, nil
	}
	due := slices.DeleteFunc(at.folders, func(name string) bool {
		below := path.Join(p, name)
		return comparePaths(below, w.After) <= 0 && !fsroot.IsAtOrBelow(w.After, below)
	})
	for names := range slices.Chunk(due, foldersAtOnce) {
		read := make([]ownedFolder, len(names))
		err := fsroot.InParallel(ctx, w.Workers, len(names), func(i int) (err error) {
			read[i], err = w.read(ctx, at.dir, names[i])
			return err
		})
		more = true
		for i := range read {
			if err == nil && more {
				more, err = w.eachBelow(ctx, read[i], path.Join(p, names[i]), visit)
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

// read reads a directory of the ledger. What is none, or was removed meanwhile, has nothing in it.
func (w OwnedWalk) read(ctx context.Context, parent *fsroot.Dir, name string) (folder ownedFolder, err error) {
	w.Request(ctx, 5)
	d, err := parent.Enter(ctx, name)
	if _, refused := fsroot.AsRefusal(err); refused || fsroot.IsGone(err) {
		return ownedFolder{}, nil
	}
	if err != nil {
		return ownedFolder{}, err
	}
	names, err := d.Names(ctx)
	if fsroot.IsGone(err) {
		d.Close()
		return ownedFolder{}, nil
	}
	for _, name := range names {
		switch isEntry := strings.HasPrefix(name, wellknown.OwnerPrefix); {
		case !isEntry:
			folder.folders = append(folder.folders, name)
		case !strings.HasSuffix(name, string(StateRetained)):
			folder.owned = true
		}
	}
	if err != nil || len(folder.folders) == 0 {
		d.Close()
		return folder, err
	}
	slices.Sort(folder.folders)
	folder.dir = d
	return folder, nil
}

// comparePaths orders paths by their components, so that a directory is next to what is in it.
func comparePaths(a, b string) int {
	return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
}
