package probe

import (
	"context"
	"errors"
	"net"
	"time"
)

// line is one connection that is kept open between probes, so that probing costs the server no
// TLS handshake each time, and shows what becomes of connections that are as old as the kernel's.
type line struct {
	conn   net.Conn
	opened time.Time
	xid    uint32
}

// dialing opens a connection.
type dialing func(ctx context.Context) (net.Conn, error)

// answer is what came of one question.
type answer struct {
	line *line // nil when there is no connection that can be asked again
	err  error
	took time.Duration
}

// open asks over a fresh connection.
func open(ctx context.Context, dial dialing, timeout time.Duration) answer {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	begin := time.Now()
	conn, err := dial(ctx)
	if err != nil {
		return answer{err: because(ctx, err), took: time.Since(begin)}
	}
	l := &line{conn: conn, opened: begin}
	return l.null(ctx, timeout)
}

// null asks over the line, which ends with a question that is not answered.
func (l *line) null(ctx context.Context, timeout time.Duration) answer {
	if l == nil {
		return answer{err: errNoLine}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	begin := time.Now()
	l.xid++
	if err := Null(ctx, l.conn, l.xid); err != nil {
		l.close()
		return answer{err: err, took: time.Since(begin)}
	}
	return answer{line: l, took: time.Since(begin)}
}

var errNoLine = errors.New("there is no open connection")

func (l *line) close() {
	if l != nil {
		l.conn.Close()
	}
}
