package quota

import (
	"encoding/json"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// ledger reads the sizes of volumes in the ledger of pkg/worker/ledger, whose form is a contract. Mount Jobs write
// entries by renames, so a directory of the ledger with the same time has the same entries.
type ledger struct {
	disk  disk
	nodes map[string]node // by path
}

// node is a directory of the ledger, as it was read.
type node struct {
	inode    uint64
	changed  unix.Timespec
	size     int64 // the largest of the owners, 0 if none is known
	children []string
}

// settled is longer than two changes can have the same time.
const settled = time.Second

// read returns the sizes of the directories whose owners' are known, and whether anything was read anew.
func (l *ledger) read(now time.Time) (sizes map[string]int64, changed bool, err error) {
	nodes := map[string]node{}
	sizes = map[string]int64{}
	waiting := []string{"/"}
	for len(waiting) > 0 {
		p := waiting[len(waiting)-1]
		waiting = waiting[:len(waiting)-1]
		n, isNew, err := l.readNode(p, now)
		if isAbsent(err) {
			continue
		}
		if err != nil {
			return nil, false, fmt.Errorf("reading the ledger of %q: %w", p, err)
		}
		changed = changed || isNew
		nodes[p] = n
		if n.size > 0 {
			sizes[p] = n.size
		}
		waiting = append(waiting, n.children...)
	}
	changed = changed || len(nodes) != len(l.nodes)
	l.nodes = nodes
	return sizes, changed, nil
}

func (l *ledger) readNode(p string, now time.Time) (n node, isNew bool, err error) {
	dir, err := l.disk.open(path.Join(wellknown.OwnersDirectory, p), unix.O_DIRECTORY)
	if err != nil {
		return n, false, err
	}
	defer dir.Close()
	var s unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &s); err != nil {
		return n, false, err
	}
	before, known := l.nodes[p]
	if known && before.inode == s.Ino && before.changed == s.Mtim {
		return before, false, nil
	}
	n.inode, n.changed = s.Ino, s.Mtim
	if now.Sub(time.Unix(s.Mtim.Unix())) < settled {
		n.changed = unix.Timespec{} // read it again
	}
	entries, err := dir.ReadDir(-1)
	for _, entry := range entries {
		name := entry.Name()
		switch below := path.Join(p, name); {
		case !strings.HasPrefix(name, wellknown.OwnerPrefix) && operations.CheckPath(below) == nil:
			n.children = append(n.children, below)
		case p != "/" && isOwner(name):
			n.size = max(n.size, l.sizeOf(path.Join(wellknown.OwnersDirectory, below)))
		}
	}
	return n, true, err
}

// isOwner reports whether a file is the entry of an owner. One that leaves is still an owner: its pods may run.
func isOwner(name string) bool {
	name, _, _ = strings.Cut(name, "~")
	return strings.HasPrefix(name, wellknown.OwnerPrefix) && !strings.HasSuffix(name, wellknown.RetainedSuffix)
}

// maxEntryBytes is more than any entry has.
const maxEntryBytes = 64 << 10

// sizeOf returns the size in an entry, 0 if it has none that can be read: a Job reports a damaged one.
func (l *ledger) sizeOf(p string) int64 {
	file, err := l.disk.open(p, 0)
	if err != nil {
		return 0
	}
	defer file.Close()
	var entry struct {
		Size  int64 `json:"size"`
		Reads bool  `json:"reads"`
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return 0
	}
	text, err := io.ReadAll(io.LimitReader(file, maxEntryBytes))
	if err != nil || json.Unmarshal(text, &entry) != nil || entry.Reads {
		return 0
	}
	return wholeBlocks(entry.Size)
}
