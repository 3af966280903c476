package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// blockSize is the size of each file: one page, and one request of NFS.
const blockSize = 4096

// block is memory of a page, as O_DIRECT needs it.
type block []byte

func newBlock() (block, error) {
	memory, err := unix.Mmap(-1, 0, blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("allocating a page: %w", err)
	}
	return memory, nil
}

// errTorn is of a block that holds parts of two writes. NFS promises whole blocks under locks only.
var errTorn = errors.New("the block holds two values")

// write fills a file with a value.
func (b block) write(file *os.File, value int64) error {
	b.fill(value)
	_, err := file.WriteAt(b, 0)
	return err
}

func (b block) fill(value int64) {
	for i := 0; i < blockSize; i += 8 {
		binary.BigEndian.PutUint64(b[i:], uint64(value))
	}
}

// read returns the value of a file, 0 of an empty one.
func (b block) read(file *os.File) (int64, error) {
	n, err := file.ReadAt(b, 0)
	if n == 0 && errors.Is(err, io.EOF) {
		return 0, nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	return b[:n].value()
}

// value returns the value that a block is filled with.
func (b block) value() (int64, error) {
	if len(b) < blockSize {
		return 0, errTorn
	}
	value := binary.BigEndian.Uint64(b)
	for i := 0; i < blockSize; i += 8 {
		if binary.BigEndian.Uint64(b[i:]) != value {
			return 0, errTorn
		}
	}
	return int64(value), nil
}

// swap reads the value of a file and writes another one.
func (b block) swap(file *os.File, value int64) (int64, error) {
	got, err := b.read(file)
	if err != nil {
		return 0, err
	}
	return got, b.write(file, value)
}

// swapMapped is swap in memory that is mapped to the file. An empty file has none.
func (b block) swapMapped(file *os.File, value int64) (got int64, err error) {
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return 0, errors.Join(err, b.write(file, value))
	}
	mapped, err := unix.Mmap(int(file.Fd()), 0, blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return 0, fmt.Errorf("mapping the file: %w", err)
	}
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("using the mapped file: %v", fault) // I/O that fails is a signal
		}
		err = errors.Join(err, unix.Munmap(mapped))
	}()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	if got, err = block(mapped).value(); err == nil {
		block(mapped).fill(value)
	}
	return got, err
}

// tryFcntl takes or gives up a POSIX lock of a whole file, without waiting.
func tryFcntl(file *os.File, kind int16) error {
	return unix.FcntlFlock(file.Fd(), unix.F_SETLK, &unix.Flock_t{Type: kind, Whence: io.SeekStart})
}

// resultOf returns the result of an operation with an error.
func resultOf(err error) string {
	switch {
	case err == nil:
		return done
	case errors.Is(err, fs.ErrExist):
		return exists
	case errors.Is(err, fs.ErrNotExist):
		return missing
	}
	return "failed: " + err.Error()
}

// lockResult is resultOf for a lock, which another client may have.
func lockResult(err error) string {
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return busy
	}
	return resultOf(err)
}
