package directories

import (
	"context"
	"path"
	"slices"
	"strings"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// ledgerFolder is a directory of the ledger, as a survey reads it: without the lock, so that batches may
// change it meanwhile.
type ledgerFolder struct {
	dir     *dir // nil without folders
	owned   bool // its path has an owner
	folders []string
}

// foldersAtOnce is how many directories of the ledger are read ahead.
const foldersAtOnce = 64

// eachOwned visits the paths with an owner after options.After, in the order of comparePaths, until visit wants
// no more.
func (s *survey) eachOwned(ctx context.Context, visit func(p string) bool) error {
	top, err := s.readFolder(ctx, s.fs.state, path.Base(wellknown.OwnersDirectory))
	if err == nil {
		_, err = s.eachBelow(ctx, top, "/", visit)
	}
	return err
}

func (s *survey) eachBelow(ctx context.Context, at ledgerFolder, p string, visit func(p string) bool) (more bool, err error) {
	defer at.dir.close()
	if at.owned && comparePaths(p, s.options.After) > 0 && operations.CheckPath(p) == nil && !visit(p) {
		return false, nil
	}
	due := slices.DeleteFunc(at.folders, func(name string) bool {
		below := path.Join(p, name)
		return comparePaths(below, s.options.After) <= 0 && !isAtOrBelow(s.options.After, below)
	})
	for names := range slices.Chunk(due, foldersAtOnce) {
		read := make([]ledgerFolder, len(names))
		err := inParallel(ctx, cap(s.tokens), len(names), func(i int) (err error) {
			read[i], err = s.readFolder(ctx, at.dir, names[i])
			return err
		})
		more = true
		for i := range read {
			if err == nil && more {
				more, err = s.eachBelow(ctx, read[i], path.Join(p, names[i]), visit)
			} else {
				read[i].dir.close()
			}
		}
		if err != nil || !more {
			return false, err
		}
	}
	return true, nil
}

// readFolder reads a directory of the ledger. What is none, or was removed meanwhile, has nothing in it.
func (s *survey) readFolder(ctx context.Context, parent *dir, name string) (folder ledgerFolder, err error) {
	s.request(ctx, 5)
	d, err := parent.enter(ctx, name)
	if _, refused := asRefusal(err); refused || isGone(err) {
		return ledgerFolder{}, nil
	}
	if err != nil {
		return ledgerFolder{}, err
	}
	names, err := d.names(ctx)
	if isGone(err) {
		d.close()
		return ledgerFolder{}, nil
	}
	for _, name := range names {
		switch isEntry := strings.HasPrefix(name, wellknown.OwnerPrefix); {
		case !isEntry:
			folder.folders = append(folder.folders, name)
		case !strings.HasSuffix(name, string(stateRetained)):
			folder.owned = true
		}
	}
	if err != nil || len(folder.folders) == 0 {
		d.close()
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
