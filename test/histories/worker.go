package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// tick is longer than the resolution of a server's timestamps. Two writes within it may have one timestamp, and
	// the kernel's client then takes its cache of the first one for new.
	tick = 20 * time.Millisecond
	// raceEvents is the length of a race for one name, in events of all clients.
	raceEvents = 400
	// tornReads bounds how often a read is repeated.
	tornReads = 1000
)

// worker does random operations on the files of a directory.
type worker struct {
	*session
	dir         string
	slot, slots int // its number, and how many there are
	page        block
	ghost       *os.File // open, and removed
	seq, raced  int64
}

// work does operations until the referee ends the run.
func work(ctx context.Context, o options) error {
	s, conn, err := newSession(ctx, o.referee)
	if err != nil {
		return err
	}
	defer conn.Close()
	page, err := newBlock()
	if err != nil {
		return err
	}
	w := &worker{session: s, dir: o.dir, slot: o.slot, slots: o.slots, page: page, raced: -1}
	if err := w.prepare(); err != nil {
		if err := w.fail(create, w.own(), err); err != nil {
			return err
		}
		return errors.Join(err, w.exchange(w.returns))
	}
	for !w.stop {
		if err := w.step(); err != nil {
			return err
		}
		time.Sleep(time.Duration(rand.Int64N(int64(o.rest) + 1)))
	}
	return w.exchange(w.returns)
}

func (w *worker) path(name string) string { return filepath.Join(w.dir, name) }

func (w *worker) own() string { return "own-" + strconv.Itoa(w.slot) }

// value returns one that no client writes again.
func (w *worker) value() int64 {
	w.seq++
	return int64(w.client)<<32 | w.seq
}

func (w *worker) prepare() error {
	for _, dir := range []string{"race", w.own()} {
		if err := os.MkdirAll(w.path(dir), 0o755); err != nil {
			return fmt.Errorf("preparing: %w", err)
		}
	}
	for slot := range w.slots { // so that no operation finds one missing
		if err := errors.Join(w.touch(fmt.Sprintf("direct-%d", slot)), w.touch(fmt.Sprintf("closed-%d", slot))); err != nil {
			return fmt.Errorf("preparing: %w", err)
		}
	}
	name := w.path(fmt.Sprintf("%s/ghost-%d", w.own(), w.client))
	ghost, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR|unix.O_DIRECT, 0o644)
	if err != nil {
		return fmt.Errorf("preparing: %w", err)
	}
	w.ghost = ghost
	return os.Remove(name)
}

func (w *worker) touch(name string) error {
	file, err := os.OpenFile(w.path(name), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	return file.Close()
}

// step does one random operation, or those of a section under a lock.
func (w *worker) step() error {
	other := rand.IntN(w.slots)
	shared := rand.IntN(max(1, w.slots/2))
	switch dice := rand.IntN(100); {
	case dice < 25:
		return w.read(fmt.Sprintf("direct-%d", other), unix.O_DIRECT)
	case dice < 40:
		return w.write(fmt.Sprintf("direct-%d", w.slot), unix.O_DIRECT)
	case dice < 50:
		return w.read(fmt.Sprintf("closed-%d", other), 0)
	case dice < 57:
		defer time.Sleep(tick)
		return w.write(fmt.Sprintf("closed-%d", w.slot), 0)
	case dice < 70:
		return w.section(fmt.Sprintf("fcntl-%d", shared), tryFcntl)
	case dice < 80:
		return w.section(fmt.Sprintf("flock-%d", shared), tryFlock)
	case dice < 90:
		return w.race()
	default:
		return w.swapGhost()
	}
}

// read opens, reads and closes a file. A block of two writes is read again.
func (w *worker) read(name string, flags int) error {
	_, err := w.do(read, name, 0, func() (int64, string) {
		for range tornReads {
			value, err := w.readOnce(name, flags)
			if !errors.Is(err, errTorn) {
				return value, resultOf(err)
			}
		}
		return 0, resultOf(errTorn)
	})
	return err
}

func (w *worker) readOnce(name string, flags int) (int64, error) {
	file, err := os.OpenFile(w.path(name), os.O_RDONLY|flags, 0)
	if err != nil {
		return 0, err
	}
	value, err := w.page.read(file)
	return value, errors.Join(err, file.Close())
}

// write opens, writes and closes the worker's own file: O_DIRECT and close-to-open order the writes of one client.
func (w *worker) write(name string, flags int) error {
	value := w.value()
	_, err := w.do(write, name, value, func() (int64, string) {
		file, err := os.OpenFile(w.path(name), os.O_WRONLY|flags, 0)
		if err != nil {
			return 0, resultOf(err)
		}
		err = w.page.write(file, value)
		return 0, resultOf(errors.Join(err, file.Close()))
	})
	return err
}

func tryFlock(file *os.File, kind int16) error {
	if kind == unix.F_UNLCK {
		return unix.Flock(int(file.Fd()), unix.LOCK_UN)
	}
	return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

// section swaps the value of a file under a lock, by reading and writing or in memory that is mapped to it. The swap
// ends with the lock, which is when NFS writes it.
func (w *worker) section(name string, try func(*os.File, int16) error) error {
	file, err := os.OpenFile(w.path(name), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return w.fail(lock, name, err)
	}
	result, err := w.do(lock, name, 0, func() (int64, string) { return 0, lockResult(try(file, unix.F_WRLCK)) })
	if err != nil || result != done {
		return errors.Join(err, file.Close())
	}
	value := w.value()
	op, err := w.begin(swap, name, value)
	if err != nil {
		return err
	}
	swapIn := w.page.swap
	if value%2 == 0 {
		swapIn = w.page.swapMapped
	}
	got, failure := swapIn(file, value)
	result, err = w.do(unlock, name, 0, func() (int64, string) { return 0, resultOf(try(file, unix.F_UNLCK)) })
	if failure == nil && result != done {
		failure = errors.New(result)
	}
	w.end(op, got, resultOf(errors.Join(failure, file.Close()))) // which has the error of what unlocking wrote
	return err
}

// fail records an operation that could not begin.
func (w *worker) fail(kind Kind, name string, failure error) error {
	_, err := w.do(kind, name, 0, func() (int64, string) { return 0, "failed: " + failure.Error() })
	return err
}

// race has one client create a name, and one take it. All clients try the name of this time, each once.
func (w *worker) race() error {
	number := w.time / raceEvents
	if number == w.raced {
		return nil
	}
	w.raced = number
	name := fmt.Sprintf("race/%d", number)
	if _, err := w.do(create, name, 0, func() (int64, string) {
		file, err := os.OpenFile(w.path(name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return 0, resultOf(err)
		}
		return 0, resultOf(file.Close())
	}); err != nil {
		return err
	}
	mine := fmt.Sprintf("%s/%d-%d", w.own(), w.client, number)
	_, err := w.do(take, name, 0, func() (int64, string) { return 0, w.rename(name, mine) })
	return err
}

func (w *worker) rename(name, mine string) (result string) {
	err := os.Rename(w.path(name), w.path(mine))
	switch {
	case errors.Is(err, os.ErrNotExist) && w.has(mine):
		return "failed: the rename happened, and its answer says that it did not"
	case err != nil:
		return resultOf(err)
	}
	return w.remove(mine)
}

// remove removes a file that only this client has. If it is missing, the result says where: os.Remove would not say
// what unlink did.
func (w *worker) remove(mine string) (result string) {
	err := unix.Unlink(w.path(mine))
	switch {
	case errors.Is(err, os.ErrNotExist) && w.has(mine):
		return "failed: unlink does not find " + mine + ", which its directory has"
	case errors.Is(err, os.ErrNotExist):
		return "failed: unlink does not find " + mine + ", and neither has its directory: the request may have been done twice"
	case err != nil:
		return "failed: unlink: " + err.Error()
	}
	return done
}

// has lists the directory, because a client may remember for half a minute that a name is missing.
func (w *worker) has(name string) bool {
	entries, err := os.ReadDir(filepath.Dir(w.path(name)))
	for _, entry := range entries {
		if entry.Name() == filepath.Base(name) {
			return true
		}
	}
	return err != nil
}

// swapGhost swaps the value of the removed file, which only this client has.
func (w *worker) swapGhost() error {
	value := w.value()
	_, err := w.do(swap, fmt.Sprintf("ghost-%d", w.client), value, func() (int64, string) {
		got, err := w.page.swap(w.ghost, value)
		return got, resultOf(err)
	})
	return err
}
