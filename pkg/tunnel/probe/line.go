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

// connect asks over a fresh connection.
func connect(ctx context.Context, dial dialing, timeout time.Duration) answer {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	begin := time.Now()
	conn, err := dial(ctx)
	if err != nil {
		return answer{err: because(ctx, err), took: time.Since(begin)}
	}
	l := &line{conn: conn, opened: begin}
	return l.null(ctx)
}

// null asks over the line, which ends with a question that is not answered.
func (l *line) null(ctx context.Context) answer {
	if l == nil {
		return answer{err: errNoLine}
	}
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

// question is a NULL call under way. It waits for its answer until it is given up.
type question struct {
	answers chan answer // holds the answer
	cancel  context.CancelFunc
}

// ask begins a question.
func (l *line) ask(ctx context.Context) *question {
	ctx, cancel := context.WithCancel(ctx)
	q := &question{make(chan answer, 1), cancel}
	go func() { // ends with the answer or the context
		defer cancel()
		q.answers <- l.null(ctx)
	}()
	return q
}

// within prefers an answer that is there to a timeout that has passed: this process may not have
// run for a while.
func (q *question) within(timeout time.Duration) (answer, bool) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case a := <-q.answers:
		return a, true
	case <-timer.C:
	}
	select {
	case a := <-q.answers:
		return a, true
	default:
		return answer{}, false
	}
}

// isSilent waits for the answer to a question of an earlier round, and closes the line that it
// came over.
func (q *question) isSilent(timeout time.Duration) bool {
	if q == nil {
		return false
	}
	a, answered := q.within(timeout)
	a.line.close()
	return !answered
}

// giveUp closes the line of a question whose answer has not been taken.
func (q *question) giveUp() {
	if q == nil {
		return
	}
	q.cancel()
	a := <-q.answers
	a.line.close()
}
