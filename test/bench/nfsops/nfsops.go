// Package nfsops measures the operations of two mounts of one NFS server beside each other: one operation on the
// first mount, the same on the second, and again, so that whatever else the machine does meets both.
package nfsops

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"
)

// Result has what was measured, each for the mounts in the order of their directories.
type Result struct {
	Operations []Operation `json:"operations"`
	Streams    []Stream    `json:"streams"`
}

// Operation has the times of one kind of operation.
type Operation struct {
	Name   string   `json:"name"`
	Mounts [2]Times `json:"mounts"`
}

// Times are of many operations, one after another.
type Times struct {
	P50      time.Duration `json:"p50"`
	P99      time.Duration `json:"p99"`
	Requests float64       `json:"requests"` // to the server, for each operation
}

// Stream has the cost of many bytes in one direction.
type Stream struct {
	Name   string  `json:"name"`
	Mounts [2]Flow `json:"mounts"`
}

// Flow has the bytes of one mount, and what they took.
type Flow struct {
	Bytes     int64   `json:"bytes"`
	Seconds   float64 `json:"seconds"`
	Processor float64 `json:"processor"` // seconds of the node's processors, without those of an idle node
}

// Comparison measures two directories, which are on two mounts.
type Comparison struct {
	Dirs     [2]string
	Count    int // of each operation
	Rounds   int // of each stream
	Bytes    int // of a round, a multiple of a block
	Idle     time.Duration
	Uncached int // the flag of files that the kernel does not cache: O_DIRECT

	Requests  func(dir string) (uint64, error) // of a directory's mount to its server, until now
	Processor func() (float64, error)          // seconds that the node's processors have worked, until now
}

// ErrCached says that operations did not reach the server, so that their times say nothing about the way to it.
var ErrCached = errors.New("the kernel did operations without the server")

// Run measures all, and leaves nothing in the directories.
func (c Comparison) Run() (result Result, err error) {
	var folders [2]*folder
	for i, dir := range c.Dirs {
		if folders[i], err = newFolder(dir, c.Uncached); err != nil {
			return result, err
		}
		defer func() { err = errors.Join(err, folders[i].remove()) }()
	}
	for _, kind := range operations() {
		measured, err := c.operation(kind, folders)
		if err != nil {
			return result, fmt.Errorf("measuring %s: %w", kind.name, err)
		}
		result.Operations = append(result.Operations, measured)
	}
	result.Streams, err = c.streams(folders)
	return result, err
}

// warm is how many operations of each kind come before those that count.
const warm = 5

func (c Comparison) operation(kind operation, folders [2]*folder) (Operation, error) {
	var took [2][]time.Duration
	var before [2]uint64
	var err error
	for n := range warm + c.Count {
		for i, f := range folders {
			if n == warm {
				if before[i], err = c.Requests(c.Dirs[i]); err != nil {
					return Operation{}, err
				}
			}
			duration, err := kind.do(f, n)
			if err != nil {
				return Operation{}, err
			}
			if n >= warm {
				took[i] = append(took[i], duration)
			}
		}
	}
	result := Operation{Name: kind.name}
	for i := range folders {
		after, err := c.Requests(c.Dirs[i])
		if err != nil {
			return Operation{}, err
		}
		result.Mounts[i] = newTimes(took[i], after-before[i])
		if result.Mounts[i].Requests < 1 {
			return result, fmt.Errorf("%w: %.2f requests for each in %s", ErrCached, result.Mounts[i].Requests, c.Dirs[i])
		}
	}
	return result, nil
}

func newTimes(took []time.Duration, requests uint64) Times {
	slices.Sort(took)
	at := func(share float64) time.Duration { return took[int(math.Ceil(share*float64(len(took))))-1] }
	return Times{P50: at(0.5), P99: at(0.99), Requests: float64(requests) / float64(len(took))}
}

func (c Comparison) streams(folders [2]*folder) ([]Stream, error) {
	idle, err := c.idle()
	if err != nil {
		return nil, err
	}
	all := []Stream{{Name: "write"}, {Name: "read"}}
	for range c.Rounds {
		for s, move := range []func(*folder, int) error{(*folder).write, (*folder).read} {
			for i, f := range folders {
				if err := all[s].Mounts[i].add(c, func() error { return move(f, c.Bytes) }); err != nil {
					return nil, fmt.Errorf("measuring a stream (%s): %w", all[s].Name, err)
				}
			}
		}
	}
	for s := range all {
		for i := range folders {
			flow := &all[s].Mounts[i]
			flow.Processor = max(0, flow.Processor-idle*flow.Seconds)
		}
	}
	return all, nil
}

// idle returns how many processors an idle node uses.
func (c Comparison) idle() (float64, error) {
	before, err := c.Processor()
	time.Sleep(c.Idle)
	after, errAfter := c.Processor()
	return (after - before) / cmp.Or(c.Idle.Seconds(), 1), errors.Join(err, errAfter)
}

func (f *Flow) add(c Comparison, move func() error) error {
	before, err := c.Processor()
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := move(); err != nil {
		return err
	}
	f.Seconds += time.Since(begun).Seconds()
	f.Bytes += int64(c.Bytes)
	after, err := c.Processor()
	f.Processor += after - before
	return err
}

// folder is a directory on one of the mounts with what operations work on.
type folder struct {
	dir      string
	uncached int
	file     *os.File
	direct   *os.File // the same file, without the kernel's cache
	block    []byte
}

const (
	blockSize = 1 << 20
	fileSize  = 4 << 20
	writeSize = 8 << 10
	readSize  = 4 << 10
)
