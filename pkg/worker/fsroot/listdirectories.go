package fsroot

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// ListDirectories gives the directories that were asked for. It follows no link, changes nothing, and takes
// no lock. A directory that can be no volume is given with the reason.
func (f *FileSystem) ListDirectories(ctx context.Context, wanted requests.Directories, emit func(requests.Directory) error) error {
	l := &directoryList{emit: emit}
	for _, p := range wanted.Paths {
		info, err := f.inspectPath(ctx, p)
		if _, refused := AsRefusal(err); err != nil && !refused {
			return err
		}
		if err := l.give(directoryAt(p, info, err)); err != nil {
			return err
		}
	}
	for _, pattern := range wanted.Patterns {
		if err := l.expand(ctx, f.Root, strings.Split(pattern[1:], "/")); err != nil {
			return err
		}
	}
	return nil
}

// inspectPath inspects the directory at a path, and refuses what is none.
func (f *FileSystem) inspectPath(ctx context.Context, p string) (fs.FileInfo, error) {
	if err := operations.CheckPath(p); err != nil {
		return nil, Refuse(operations.BadPath, "%v", err)
	}
	tree := NewTree(f.Root, nil)
	defer tree.Forget("/")
	info, err := tree.Inspect(ctx, p)
	if IsGone(err) || err == nil && info == nil {
		return nil, Refuse(operations.NotFound, "there is no such directory")
	}
	return info, err
}

// directoryList is an answer that is being given.
type directoryList struct {
	emit  func(requests.Directory) error
	count int
}

func (l *directoryList) give(d requests.Directory) error {
	if l.count++; l.count > requests.MaxDirectories {
		return fmt.Errorf("there are more than %d such directories: choose fewer at once, with a narrower pattern", requests.MaxDirectories)
	}
	return l.emit(d)
}

// directoryAt describes what is at a path. Whoever is root on the file system can give it any name.
func directoryAt(p string, info fs.FileInfo, problem error) requests.Directory {
	if problem == nil {
		problem = operations.CheckPath(p)
	}
	d := requests.Directory{Path: operations.Truncate(strings.ToValidUTF8(p, "\uFFFD"), wellknown.MaxPathBytes)}
	if problem != nil {
		d.Problem = operations.Truncate(problem.Error(), MaxProblemBytes)
		return d
	}
	d.UID, d.GID, d.Setgid = UserOf(info), GroupOf(info), info.Mode()&fs.ModeSetgid != 0
	return d
}

// expand gives what matches the components below a directory.
func (l *directoryList) expand(ctx context.Context, at *Dir, components []string) error {
	name := components[0]
	if at.At(name) == wellknown.StateDirectory {
		return nil
	}
	if !strings.ContainsAny(name, `*?[\`) {
		info, err := at.Inspect(name)
		return l.visit(ctx, match{at, name, info, err, true}, components[1:])
	}
	return at.EachName(ctx, func(names []string) error {
		var matches []match
		for _, n := range names {
			if ok, _ := path.Match(name, n); ok && at.At(n) != wellknown.StateDirectory {
				matches = append(matches, match{at: at, name: n})
			}
		}
		err := InParallel(ctx, DefaultSweepWorkers, len(matches), func(i int) error {
			matches[i].info, matches[i].err = at.Inspect(matches[i].name)
			return nil
		})
		for i := 0; i < len(matches) && err == nil; i++ {
			err = l.visit(ctx, matches[i], components[1:])
		}
		return err
	})
}

// match is an entry of a directory.
type match struct {
	at    *Dir
	name  string
	info  fs.FileInfo
	err   error // of the inspection
	named bool  // by its whole name
}

func (m match) path() string { return m.at.At(m.name) }

// visit goes on with a match. Files that match a pattern by chance are left out.
func (l *directoryList) visit(ctx context.Context, m match, below []string) error {
	err := m.err
	if err == nil {
		err = WantDirectory(m.info, m.path())
	}
	r, refused := AsRefusal(err)
	switch isMissing := IsGone(err); {
	case isMissing, refused && !m.named && r.Reason == operations.NotADirectory:
		return nil
	case refused:
		return l.give(directoryAt(m.path(), nil, err))
	case err != nil:
		return err
	case len(below) == 0:
		return l.give(directoryAt(m.path(), m.info, nil))
	}
	d, err := m.at.Enter(ctx, m.name)
	if _, refused := AsRefusal(err); refused || IsGone(err) {
		return l.give(directoryAt(m.path(), nil, err))
	}
	if err != nil {
		return err
	}
	defer d.Close()
	return l.expand(ctx, d, below)
}

// MaxProblemBytes is as much of a message as an answer has for each owner.
const MaxProblemBytes = 1024
