package directories

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// blockBytes is the unit in which a hole is recognized.
const blockBytes = 4096

// content copies the data of a file. What is a hole in a sparse file is none in its copy either.
func (c *copying) content(ctx context.Context, from, to *os.File, is *unix.Stat_t) error {
	sparse := is.Blocks*blockSize < is.Size
	buffer := c.buffers.Get().(*[]byte) //nolint:errcheck // nothing else is put there
	defer c.buffers.Put(buffer)
	for offset := int64(0); offset < is.Size; {
		if ctx.Err() != nil {
			return &stopError{context.Cause(ctx)}
		}
		if sparse {
			if offset = nextData(from, offset); offset >= is.Size {
				break
			}
		}
		n, err := from.ReadAt((*buffer)[:min(int64(len(*buffer)), is.Size-offset)], offset)
		if n > 0 {
			if err := writeBlocks(to, (*buffer)[:n], offset, sparse); err != nil {
				return err
			}
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
		return to.Truncate(is.Size)
	}
	return nil
}

// nextData is where the next data begins, at or after an offset. Servers before NFSv4.2 do not tell: then
// holes are read, and found by their zeros.
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
	for begin := 0; begin < len(data); {
		end := begin
		for end < len(data) && !isZero(block(data, end)) {
			end += len(block(data, end))
		}
		if end > begin {
			if _, err := to.WriteAt(data[begin:end], offset+int64(begin)); err != nil {
				return err
			}
		}
		begin = end
		for begin < len(data) && isZero(block(data, begin)) {
			begin += len(block(data, begin))
		}
	}
	return nil
}

func block(data []byte, at int) []byte { return data[at:min(at+blockBytes, len(data))] }

func isZero(data []byte) bool {
	for _, b := range data {
		if b != 0 {
			return false
		}
	}
	return true
}
