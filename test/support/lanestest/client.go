package lanestest

import (
	"bytes"
	"fmt"
	"io"
)

// Null returns a call of the null procedure.
func Null(xid uint32) []byte { return record(words(xid, 0, 2, nfsProgram, 4, 0, 0, 0, 0, 0)) }

// Compound returns a call of NFS 4 with a minor version that has a body of some bytes, and asks for an answer with
// one of others.
func Compound(xid, minor uint32, size, answer int) []byte {
	return record(words(xid, 0, 2, nfsProgram, 4, 1, 0, 0, 0, 0, 0, minor), make([]byte, size), words(uint32(answer)))
}

// Reply returns a reply to a call of the server.
func Reply(xid uint32) []byte { return record(words(xid, 1, 0, 0, 0, 0)) }

// Load sends calls of NFS 4.1 with as many waiting as there are slots, checks each answer, and returns when
// all have come. Like the kernel, it reads answers while a call cannot be written.
func Load(conn io.ReadWriter, first uint32, calls, slots, size, answer int) error {
	free, written := make(chan struct{}, slots), make(chan error, 1)
	for range slots {
		free <- struct{}{}
	}
	go func() {
		for xid := first; xid < first+uint32(calls); xid++ {
			if _, ok := <-free; !ok {
				return
			}
			if _, err := conn.Write(Compound(xid, 1, size, answer)); err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	waiting := map[uint32]bool{}
	for xid := range uint32(calls) {
		waiting[first+xid] = true
	}
	for len(waiting) > 0 {
		m, err := ReadRecord(conn)
		if err != nil {
			close(free)
			return err
		}
		xid := word(m, 0)
		if want := append(words(xid, 1, 0, 0, 0, 0), body(xid, answer)...); !waiting[xid] || !bytes.Equal(m, want) {
			close(free)
			return fmt.Errorf("a record of %d bytes, which begins with %x, answers nothing", len(m), m[:min(len(m), 32)])
		}
		delete(waiting, xid)
		free <- struct{}{}
	}
	return <-written
}
