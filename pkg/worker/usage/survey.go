// Package usage counts what volumes use. It reads only, and takes no lock.
package usage

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/ledger"
	"gnuthought.com/efs-stunnel/pkg/worker/treewalk"
)

// Options say how volumes are counted.
type Options struct {
	// After is the path of the last volume that an earlier survey has counted, or "".
	After string
	// Found is called with what a volume uses, in the order of the volumes' paths. Its error ends the survey.
	Found func(operations.Usage) error
	// VolumeTime is how long one volume may take. After that, what was counted so far is found.
	VolumeTime time.Duration // 0 is defaultVolumeTime
	// Workers is how many requests are under way at once, and Rate how many begin in a second.
	Workers, Rate int // 0 is defaultWorkers and defaultRate
}

const (
	// defaultWorkers hide the round trips of an NFS server from each other. With more, the memory
	// of a survey could exceed its limit: see pieceAt.
	defaultWorkers = 24
	// defaultRate is a seventh of what EFS serves in its slowest mode.
	defaultRate = 5000

	defaultVolumeTime = time.Hour
	// countedAhead bounds how many volumes are counted while the one before them takes long.
	countedAhead = 1024
)

// Survey counts what each volume of the ledger uses. If it is ended, the next one goes on after the last one found.
func Survey(ctx context.Context, f *fsroot.FileSystem, o Options) error {
	if f.State == nil {
		return nil // no volume was ever made here
	}
	job := ctx
	ctx, cancel := context.WithCancelCause(job)
	defer cancel(nil)
	o.VolumeTime = cmp.Or(o.VolumeTime, defaultVolumeTime)
	s := &survey{
		options: o, cancel: cancel,
		Walkers: treewalk.NewWalkers(f, cmp.Or(o.Workers, defaultWorkers), cmp.Or(o.Rate, defaultRate)),
	}
	counted := make(chan *count, countedAhead)
	var walking sync.WaitGroup
	walking.Go(func() {
		defer close(counted)
		s.countAll(ctx, counted)
	})
	for c := range counted {
		<-c.done
		if ctx.Err() != nil {
			continue // it may lack something
		}
		if err := o.Found(c.usage()); err != nil {
			cancel(err)
		}
	}
	walking.Wait()
	return cmp.Or(fsroot.Stopped(job), context.Cause(ctx))
}

type survey struct {
	*treewalk.Walkers
	options Options
	cancel  context.CancelCauseFunc
}

// countAll begins to count each volume when a walker is free for it.
func (s *survey) countAll(ctx context.Context, counted chan<- *count) {
	workers := cmp.Or(s.options.Workers, defaultWorkers)
	err := ledger.EachPath(ctx, s.System, s.options.After, workers, s.Request, func(p string) bool {
		if ctx.Err() != nil {
			return false
		}
		c := &count{survey: s, path: p, done: make(chan struct{})}
		s.Next(func() { c.run(ctx) })
		counted <- c
		return true
	})
	if err != nil && ctx.Err() == nil {
		s.cancel(err)
	}
}

// count counts one volume. Walkers read its directories in pieces, which bounds what is held in memory.
type count struct {
	survey *survey
	path   string
	done   chan struct{} // closed when the numbers are final
	walked sync.WaitGroup

	mu         sync.Mutex
	sum        tally  // guarded by mu
	incomplete string // guarded by mu; the first reason
}

// tally is a sum of files. Of a file with n links each counts one nth: together they are the file, without
// remembering which were seen. A file that several volumes link is divided among them.
type tally struct{ bytes, files float64 }

func (t *tally) add(info fs.FileInfo) {
	stat, links := fsroot.StatOf(info), 1.0
	if !info.IsDir() {
		links = max(float64(stat.Nlink), 1)
	}
	t.bytes += float64(stat.Blocks*fsroot.BlockSize) / links
	t.files += 1 / links
}

func (c *count) usage() operations.Usage {
	c.mu.Lock()
	defer c.mu.Unlock()
	return operations.Usage{
		Path:       c.path,
		Bytes:      int64(math.Round(c.sum.bytes)),
		Files:      int64(math.Round(c.sum.files)),
		Incomplete: c.incomplete,
	}
}

func (c *count) add(sum tally) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sum.bytes += sum.bytes
	c.sum.files += sum.files
}

// fail notes why something is not counted. What is deleted or replaced meanwhile is not missing. If the server
// does not answer, the survey ends: no other volume could be counted.
func (c *count) fail(err error) {
	if err == nil || fsroot.IsGone(err) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
		return
	}
	if errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ETIMEDOUT) {
		c.survey.cancel(err)
	}
	c.lack(err.Error())
}

func (c *count) lack(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.incomplete = cmp.Or(c.incomplete, reason)
}

// run counts the volume, as far as its time allows.
func (c *count) run(all context.Context) {
	ctx, cancel := context.WithTimeout(all, c.survey.options.VolumeTime)
	c.walked.Add(1)
	defer c.walked.Done()
	go func() {
		defer cancel()
		defer close(c.done)
		c.walked.Wait()
		if ctx.Err() != nil {
			c.lack("counting it took longer than " + c.survey.options.VolumeTime.String())
		}
	}()
	d, err := c.open(ctx)
	if err != nil {
		c.fail(err)
		return
	}
	c.directory(ctx, d, 0)
}

// open opens the volume's directory. A symbolic link on the way is refused.
func (c *count) open(ctx context.Context) (*os.Root, error) {
	at := c.survey.System.Root
	for name := range strings.SplitSeq(c.path[1:], "/") {
		c.survey.Request(ctx, 3)
		next, err := at.Enter(ctx, name)
		if at != c.survey.System.Root {
			at.Close()
		}
		if err != nil {
			return nil, err
		}
		at = next
	}
	return at.Root, nil
}

// maxCountDepth is how deep files are counted; a volume that is deeper is incomplete. Paths that programs can use, of
// 4096 bytes, rarely have so many directories.
const maxCountDepth = 128

// pieceAt is how many bytes of a directory's entries are read at once: enough to give all goroutines work, and
// less where the pieces of many directories above are held. With all workers in directories of maxCountDepth,
// full of directories with the longest names, they take less than 48 MiB.
func pieceAt(depth int) int {
	if depth < 8 {
		return 32 << 10
	}
	return 4 << 10
}

// directory counts what is in a directory, and closes it.
func (c *count) directory(ctx context.Context, root *os.Root, depth int) {
	d := &sharedRoot{Root: root}
	d.users.Add(1)
	defer d.leave()
	if depth == 0 {
		c.inspect(ctx, d, []string{"."}) // in others, they are entries
	}
	c.survey.Request(ctx, 1)
	list, err := d.Open(".")
	if err != nil {
		c.fail(err)
		return
	}
	defer list.Close()
	next := func() (names []string, err error) {
		c.survey.MayRequest(ctx, func() { names, err = fsroot.ReadNames(list, pieceAt(depth)) })
		return names, err
	}
	for names, err := range fsroot.Pieces(ctx, next) {
		c.fail(err)
		below := c.survey.Some(names, inspectedBy, func(some []string) []string { return c.inspect(ctx, d, some) })
		if depth == maxCountDepth && len(below) > 0 {
			c.lack("it has directories that are nested too deep to be counted")
			below = nil
		}
		for _, name := range below {
			if ctx.Err() == nil {
				c.below(ctx, d, name, depth+1)
			}
		}
	}
}

// inspectedBy is how many entries one goroutine inspects, while others inspect the next.
const inspectedBy = 16

// inspect counts entries of a directory, and gives the names of those that are directories.
func (c *count) inspect(ctx context.Context, d *sharedRoot, names []string) (below []string) {
	var sum tally
	for _, name := range names {
		if ctx.Err() != nil {
			break
		}
		var info os.FileInfo
		var err error
		c.survey.MayRequest(ctx, func() { info, err = d.Lstat(name) })
		if err != nil {
			c.fail(err)
			continue
		}
		sum.add(info)
		if info.IsDir() {
			below = append(below, name)
		}
	}
	c.add(sum)
	return below
}

// below counts a directory in another one, here or in a free goroutine.
func (c *count) below(ctx context.Context, parent *sharedRoot, name string, depth int) {
	parent.users.Add(1)
	c.walked.Add(1)
	c.survey.Here(func() {
		defer c.walked.Done()
		c.survey.Request(ctx, 1)
		// A link that has replaced the directory leads nowhere but into the parent: os.Root holds that.
		root, err := parent.OpenRoot(name)
		parent.leave()
		if err != nil {
			c.fail(err)
			return
		}
		c.directory(ctx, root, depth)
	})
}

// sharedRoot is an open directory that its last user closes.
type sharedRoot struct {
	*os.Root
	users atomic.Int64
}

func (r *sharedRoot) leave() {
	if r.users.Add(-1) == 0 {
		_ = r.Close()
	}
}
