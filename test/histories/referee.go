package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds how long finish waits for clients whose operations do not return.
const patience = 2 * time.Minute

// referee writes the history: it stamps the events of all clients in the order in which it receives them.
type referee struct {
	mu       sync.Mutex
	changed  *sync.Cond // of mu
	file     *os.File
	out      *bufio.Writer
	now      int64       // events so far
	last     int         // newest client
	returned map[int]int // operations of the connected clients
	stopping bool
}

func newReferee(history string) (*referee, error) {
	file, err := os.Create(history)
	if err != nil {
		return nil, fmt.Errorf("creating the history: %w", err)
	}
	r := &referee{file: file, out: bufio.NewWriter(file), returned: map[int]int{}}
	r.changed = sync.NewCond(&r.mu)
	return r, nil
}

// serve answers connections until the context ends.
func (r *referee) serve(ctx context.Context, listener net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accepting clients: %w", err)
		}
		if err := endSilent(conn); err != nil {
			return fmt.Errorf("limiting how long a client is silent: %w", err)
		}
		go func() {
			defer conn.Close()
			r.answer(conn)
		}()
	}
}

// silence bounds how long the kernel of a client may not acknowledge what was sent. Without it, a client whose node lost
// its power counts as one that does not go on for a quarter of an hour.
const silence = time.Minute

func endSilent(conn net.Conn) error {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	var failure error
	err = raw.Control(func(fd uintptr) {
		failure = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silence/time.Millisecond))
	})
	return errors.Join(err, failure)
}

// answer serves one connection. Its error is the end of the connection, which is an event itself.
func (r *referee) answer(conn net.Conn) {
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	var first request
	if in.Decode(&first) != nil {
		return
	}
	switch first.Role {
	case "client":
		r.follow(in, out)
	case "await":
		_ = out.Encode(r.await(first.Clients, first.Count))
	case "finish":
		r.finish()
		_, _ = io.Copy(conn, r.file)
	}
}

// follow records the events of one client until its connection ends.
func (r *referee) follow(in *json.Decoder, out *json.Encoder) {
	answer := r.enter()
	client := answer.Client
	defer r.record(client, []Event{{Phase: gone}})
	for out.Encode(answer) == nil {
		var next request
		if in.Decode(&next) != nil {
			return
		}
		answer = r.record(client, next.Events)
	}
}

func (r *referee) enter() reply {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	r.returned[r.last] = 0
	r.changed.Broadcast()
	return reply{Client: r.last, Time: r.now, Stop: r.stopping}
}

// record stamps events and writes them.
func (r *referee) record(client int, events []Event) reply {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range events {
		r.now++
		e.Time, e.Client = r.now, client
		switch e.Phase {
		case returned:
			r.returned[client]++
		case gone:
			delete(r.returned, client)
		}
		line, err := json.Marshal(e)
		if err == nil {
			_, err = r.out.Write(append(line, '\n'))
		}
		if err != nil {
			panic(fmt.Sprintf("writing the history: %v", err)) // a history with a gap is worth nothing
		}
	}
	r.changed.Broadcast()
	return reply{Time: r.now, Stop: r.stopping}
}

// await returns when so many clients are connected, and each connected one has done so many more operations.
func (r *referee) await(clients, count int) reply {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := maps.Clone(r.returned)
	for len(r.returned) < clients || r.laggards(before, count) > 0 {
		r.changed.Wait()
	}
	return reply{Time: r.now}
}

func (r *referee) laggards(before map[int]int, count int) (laggards int) {
	for client, returned := range r.returned {
		if returned < before[client]+count {
			laggards++
		}
	}
	return laggards
}

// finish ends the clients, and leaves the history ready to be read from its beginning.
func (r *referee) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping = true
	over := false
	timer := time.AfterFunc(patience, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		over = true
		r.changed.Broadcast()
	})
	defer timer.Stop()
	for len(r.returned) > 0 && !over {
		r.changed.Wait()
	}
	err := r.out.Flush()
	if err == nil {
		_, err = r.file.Seek(0, io.SeekStart)
	}
	if err != nil {
		panic(fmt.Sprintf("reading the history: %v", err))
	}
}
