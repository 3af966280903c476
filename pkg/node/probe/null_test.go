package probe_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/node/probe"
	"gnuthought.com/efs-stunnel/pkg/program/nfsnull"
)

const xid = 7

// reply is a record of 32-bit words.
func reply(words ...uint32) []byte {
	record := binary.BigEndian.AppendUint32(nil, 1<<31|uint32(4*len(words)))
	for _, w := range words {
		record = binary.BigEndian.AppendUint32(record, w)
	}
	return record
}

// serverOf is a connection to a server that reads a call, sends a reply, and closes unless it hangs.
func serverOf(t *testing.T, reply []byte, hangs bool) net.Conn {
	t.Helper()
	client, server := net.Pipe()
	t.Cleanup(func() { client.Close(); server.Close() })
	go func() {
		call := make([]byte, 44)
		if _, err := io.ReadFull(server, call); err != nil {
			return
		}
		for _, b := range reply { // one byte at a time
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
		reply  []byte
		hangs  bool
		reason string
	}{
		"a reply":                {good, false, ""},
		"a reply with verifier":  {reply(xid, 1, 0, 1, 8, 5, 5, 0), false, ""},
		"a reply in fragments":   {append([]byte{0, 0, 0, 4, 0, 0, 0, xid}, reply(1, 0, 0, 0, 0)...), false, ""},
		"no reply":               {nil, true, tunnelspec.ProbeTimeout},
		"half a reply":           {good[:13], true, tunnelspec.ProbeTimeout},
		"closed without a reply": {nil, false, tunnelspec.ProbeClosed},
		"closed in the reply":    {good[:13], false, tunnelspec.ProbeClosed},
		"another call's reply":   {reply(xid+1, 1, 0, 0, 0, 0), false, tunnelspec.ProbeProtocol},
		"a call as reply":        {reply(xid, 0, 0, 0, 0, 0), false, tunnelspec.ProbeProtocol},
		"authentication denied":  {reply(xid, 1, 1, 1, 5), false, tunnelspec.ProbeDenied},
		"RPC version denied":     {reply(xid, 1, 1, 0, 0, 0), false, tunnelspec.ProbeProtocol},
		"unknown reply status":   {reply(xid, 1, 2, 0, 0, 0), false, tunnelspec.ProbeProtocol},
		"program not available":  {reply(xid, 1, 0, 0, 0, 1), false, tunnelspec.ProbeProtocol},
		"version not available":  {reply(xid, 1, 0, 0, 0, 2, 3, 3), false, tunnelspec.ProbeProtocol},
		"too short":              {reply(xid, 1), false, tunnelspec.ProbeProtocol},
		"an oversized record":    {[]byte{0xff, 0xff, 0xff, 0xff}, true, tunnelspec.ProbeProtocol},
		"an oversized verifier":  {reply(xid, 1, 0, 0, 0xffffffff, 0), false, tunnelspec.ProbeProtocol},
		"empty fragments":        {make([]byte, 64), true, tunnelspec.ProbeProtocol},
		"another protocol":       {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), true, tunnelspec.ProbeProtocol},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			limit := time.Minute
			if tt.reason == tunnelspec.ProbeTimeout {
				limit = 300 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			err := nfsnull.Call(ctx, serverOf(t, tt.reply, tt.hangs), xid)
			if got := probe.Reason(err); got != tt.reason {
				t.Errorf("got %q (%v), want %q", got, err, tt.reason)
			}
		})
	}
}

// TestCallIsEncoded wants the bytes that rpcinfo and the kernel send.
func TestCallIsEncoded(t *testing.T) {
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
	if err := nfsnull.Call(t.Context(), client, xid); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the end of the connection", err)
	}
	want := reply(xid, 0, 2, 100003, 4, 0, 0, 0, 0, 0)
	if call := <-got; string(call) != string(want) {
		t.Errorf("sent %x, want %x", call, want)
	}
}

func FuzzReply(f *testing.F) {
	f.Add(reply(xid, 1, 0, 0, 0, 0))
	f.Add([]byte{0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, reply []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := nfsnull.Call(ctx, serverOf(t, reply, false), xid); err == nil && len(reply) < 28 {
			t.Errorf("accepted %x", reply)
		}
	})
}

// Events are counted as one only if their messages are equal, and local ports differ.
func TestErrorsOfTwoConnectionsAreEqual(t *testing.T) {
	server, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	errs := map[string]bool{}
	for range 2 {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", server.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = nfsnull.Call(ctx, conn, xid)
		if probe.Reason(err) != tunnelspec.ProbeTimeout {
			t.Fatalf("got %v, want a timeout", err)
		}
		errs[err.Error()] = true
	}
	if len(errs) != 1 {
		t.Errorf("got different errors: %v", errs)
	}
}
