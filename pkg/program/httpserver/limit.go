package httpserver

import (
	"net"
	"slices"
	"sync"
)

// Limits of a server that everybody in a cluster can reach.
const (
	// MaxHeaderBytes is enough for the token of a pod.
	MaxHeaderBytes = 8 << 10
	// MaxConnections is far more than probes and scrapes need.
	MaxConnections = 128
)

// Limit bounds the open connections of a listener, by a number that may change. Where there are more, the client address with most of them
// loses its oldest: a client cannot keep others from connecting, as it could where new ones wait.
func Limit(listener net.Listener, most func() int) net.Listener {
	return &limited{Listener: listener, most: most, open: map[string][]*connection{}}
}

type limited struct {
	net.Listener
	most func() int

	mu    sync.Mutex
	count int                      // guarded by mu
	open  map[string][]*connection // guarded by mu; by client address, oldest first
}

type connection struct {
	net.Conn
	limited *limited
	client  string
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: accepted, limited: l, client: clientOf(accepted)}
	if extra := l.add(c); extra != nil {
		_ = extra.Close()
	}
	return c, nil
}

func clientOf(c net.Conn) string {
	host, _, _ := net.SplitHostPort(c.RemoteAddr().String()) // "" for all clients of a socket
	return host
}

// add returns the connection that is too many, nil for none.
func (l *limited) add(c *connection) (extra *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[c.client] = append(l.open[c.client], c)
	if l.count++; l.count <= l.most() {
		return nil
	}
	most := c.client
	for client, all := range l.open {
		if len(all) > len(l.open[most]) {
			most = client
		}
	}
	return l.open[most][0]
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.limited.remove(c)
	return c.Conn.Close()
}

func (l *limited) remove(c *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.open[c.client], c)
	if i < 0 {
		return // closed before
	}
	l.count--
	if l.open[c.client] = slices.Delete(l.open[c.client], i, i+1); len(l.open[c.client]) == 0 {
		delete(l.open, c.client)
	}
}
