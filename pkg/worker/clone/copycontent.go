package clone

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

// blockBytes is the unit in which a hole is recognized.
const blockBytes = 4096

// Bytes that were written are in the memory of the node until they are flushed, and the Job may have little.
const (
	flushedBytes = 8 << 20  // of a file at most; so much before the end of a copy that was begun is on the server
	maxUnflushed = 64 << 20 // of all files together, and one buffer for each
)

type writing struct {
	c        *copying
	at       string
	from, to *os.File
	begin    int64 // what is before that is on the server
	bytes    int64 // that were written since
}

// makeRoom flushes before anything is written between offset and end, if there are too many bytes already.
func (w *writing) makeRoom(ctx context.Context, offset, end int64) error {
	if end-w.begin <= flushedBytes && w.c.unflushed.Load() < maxUnflushed {
		return nil
	}
	if w.bytes == 0 {
		w.begin = offset
		return nil
	}
	return w.flush(ctx, offset)
}

func (w *writing) wrote(n int64) {
	w.bytes += n
	w.c.unflushed.Add(n)
}

// flush waits until what was written is on the server, and drops it from memory.
func (w *writing) flush(ctx context.Context, offset int64) error {
	if err := w.c.System.Before(ctx, "flush "+w.at); err != nil {
		return err
	}
	if err := fsroot.IgnoringEINTR(func() error { return unix.Fdatasync(int(w.to.Fd())) }); err != nil {
		return err
	}
	for _, file := range []*os.File{w.from, w.to} { // advice only
		_ = unix.Fadvise(int(file.Fd()), w.begin, offset-w.begin, unix.FADV_DONTNEED)
	}
	w.wrote(-w.bytes)
	w.begin = offset
	return nil
}

// content copies the data of a file from an offset on, until all is on the server. Holes stay holes.
func (c *copying) content(ctx context.Context, at string, from, to *os.File, is *unix.Stat_t, start int64) error {
	sparse := is.Blocks*fsroot.BlockSize < is.Size
	buffer := c.buffers.Get().(*[]byte) //nolint:errcheck // nothing else is put there
	defer c.buffers.Put(buffer)
	w := &writing{c: c, at: at, from: from, to: to, begin: start}
	defer func() { w.wrote(-w.bytes) }() // those of a copy that fails
	for offset := start; offset < is.Size; {
		if err := fsroot.Stopped(ctx); err != nil {
			return err
		}
		if sparse {
			if offset = nextData(from, offset); offset >= is.Size {
				break
			}
		}
		end := min(offset+int64(len(*buffer)), is.Size)
		if err := w.makeRoom(ctx, offset, end); err != nil {
			return err
		}
		n, err := c.read(at, from, (*buffer)[:end-offset], offset)
		if n > 0 {
			if err := writeBlocks(to, (*buffer)[:n], offset, sparse); err != nil {
				return err
			}
			w.wrote(int64(n))
			c.bytes.Add(int64(n))
		}
		offset += int64(n)
		if errors.Is(err, io.EOF) {
			break // it became shorter, which is found afterwards
		}
		if err != nil {
			return err
		}
	}
	if sparse {
		if err := w.makeRoom(ctx, is.Size, is.Size); err != nil {
			return err
		}
		if err := to.Truncate(is.Size); err != nil {
			return err
		}
	}
	return w.flush(ctx, is.Size)
}

func (c *copying) read(at string, from *os.File, into []byte, offset int64) (int, error) {
	if err := c.System.Hook(c.System.Source, "read "+at); err != nil {
		return 0, ofSource(err)
	}
	n, err := from.ReadAt(into, offset)
	return n, ofSource(err)
}

// nextData is where data begins, at or after an offset. Servers before NFSv4.2 do not tell: then holes are read.
func nextData(file *os.File, offset int64) int64 {
	next, err := unix.Seek(int(file.Fd()), offset, unix.SEEK_DATA)
	switch {
	case errors.Is(err, syscall.ENXIO): // there is none
		return 1<<63 - 1
	case err != nil:
		return offset
	}
	return next
}

// writeBlocks writes data, in a sparse file without the blocks that are zero.
func writeBlocks(to *os.File, data []byte, offset int64, sparse bool) error {
	if !sparse {
		_, err := to.WriteAt(data, offset)
		return err
	}
	for begin, end := 0, 0; begin < len(data); begin = end {
		isHole := isZero(block(data, begin))
		for end < len(data) && isZero(block(data, end)) == isHole {
			end += len(block(data, end))
		}
		if isHole {
			continue
		}
		if _, err := to.WriteAt(data[begin:end], offset+int64(begin)); err != nil {
			return err
		}
	}
	return nil
}

func block(data []byte, at int) []byte { return data[at:min(at+blockBytes, len(data))] }

var zeros [blockBytes]byte

func isZero(block []byte) bool { return bytes.Equal(block, zeros[:len(block)]) }
