package probe_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/tunnel/probe"
)

const xid = 7

// reply is a record of these words.
func reply(words ...uint32) []byte {
	record := binary.BigEndian.AppendUint32(nil, 1<<31|uint32(4*len(words)))
	for _, w := range words {
		record = binary.BigEndian.AppendUint32(record, w)
	}
	return record
}

// script reads a call, then sends what it has to say and, unless it hangs, closes.
func script(t *testing.T, say []byte, hangs bool) net.Conn {
	t.Helper()
	client, server := net.Pipe()
	t.Cleanup(func() { client.Close(); server.Close() })
	go func() {
		call := make([]byte, 44)
		if _, err := io.ReadFull(server, call); err != nil {
			return
		}
		for _, b := range say { // in the smallest pieces there are
			if _, err := server.Write([]byte{b}); err != nil {
				return
			}
		}
		if !hangs {
			server.Close()
		}
	}()
	return client
}

func TestNull(t *testing.T) {
	good := reply(xid, 1, 0, 0, 0, 0)
	tests := map[string]struct {
		say    []byte
		hangs  bool
		reason string
	}{
		"an answer":               {good, false, ""},
		"an answer with verifier": {reply(xid, 1, 0, 1, 8, 5, 5, 0), false, ""},
		"an answer in fragments":  {append([]byte{0, 0, 0, 4, 0, 0, 0, xid}, reply(1, 0, 0, 0, 0)...), false, ""},
		"silence":                 {nil, true, probe.ReasonTimeout},
		"half an answer":          {good[:13], true, probe.ReasonTimeout},
		"closed":                  {nil, false, probe.ReasonClosed},
		"closed in the middle":    {good[:13], false, probe.ReasonClosed},
		"another call's answer":   {reply(xid+1, 1, 0, 0, 0, 0), false, probe.ReasonProtocol},
		"a call":                  {reply(xid, 0, 0, 0, 0, 0), false, probe.ReasonProtocol},
		"denied as a client":      {reply(xid, 1, 1, 1, 5), false, probe.ReasonDenied},
		"denied for its version":  {reply(xid, 1, 1, 0, 0, 0), false, probe.ReasonProtocol},
		"neither":                 {reply(xid, 1, 2, 0, 0, 0), false, probe.ReasonProtocol},
		"no such program":         {reply(xid, 1, 0, 0, 0, 1), false, probe.ReasonProtocol},
		"no such version":         {reply(xid, 1, 0, 0, 0, 2, 3, 3), false, probe.ReasonProtocol},
		"too short":               {reply(xid, 1), false, probe.ReasonProtocol},
		"a huge record":           {[]byte{0xff, 0xff, 0xff, 0xff}, true, probe.ReasonProtocol},
		"a huge verifier":         {reply(xid, 1, 0, 0, 0xffffffff, 0), false, probe.ReasonProtocol},
		"empty fragments":         {make([]byte, 64), true, probe.ReasonProtocol},
		"another protocol":        {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), true, probe.ReasonProtocol},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			limit := time.Minute
			if tt.reason == probe.ReasonTimeout {
				limit = 300 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			err := probe.Null(ctx, script(t, tt.say, tt.hangs), xid)
			if got := probe.Reason(err); got != tt.reason {
				t.Errorf("got %q (%v), want %q", got, err, tt.reason)
			}
		})
	}
}

// The bytes are those that rpcinfo and the kernel send.
func TestCall(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	got := make(chan []byte, 1)
	go func() {
		defer server.Close()
		call := make([]byte, 44)
		if _, err := io.ReadFull(server, call); err == nil {
			got <- call
		}
	}()
	if err := probe.Null(t.Context(), client, xid); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the end of the connection", err)
	}
	want := reply(xid, 0, 2, 100003, 4, 0, 0, 0, 0, 0)
	if call := <-got; string(call) != string(want) {
		t.Errorf("sent %x, want %x", call, want)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(reply(xid, 1, 0, 0, 0, 0))
	f.Add([]byte{0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, say []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := probe.Null(ctx, script(t, say, false), xid); err == nil && len(say) < 28 {
			t.Errorf("%x is taken for an answer", say)
		}
	})
}

// An event about the same trouble must read the same each time, and the port at this end does not.
func TestTroubleReadsTheSameInEachConnection(t *testing.T) {
	server, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	said := map[string]bool{}
	for range 2 {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", server.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = probe.Null(ctx, conn, xid)
		if probe.Reason(err) != probe.ReasonTimeout {
			t.Fatalf("got %v, want a timeout", err)
		}
		said[err.Error()] = true
	}
	if len(said) != 1 {
		t.Errorf("one trouble is told in %d ways: %v", len(said), said)
	}
}
