package probe

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Times of a round. A server falls silent at worst right after a good probe; then the interval
// and both timeouts pass until that is certain: 4.5 s for a tunnel in use, which leaves a second
// and a half of the 6 s in which it is to have left that server; 14.5 s for another tunnel with
// the default interval.
const (
	firstTimeout   = 2 * time.Second
	confirmTimeout = 2500 * time.Millisecond

	usedInterval       = 2 * time.Second
	usedFirstTimeout   = time.Second
	usedConfirmTimeout = 1500 * time.Millisecond

	// renewAfter is the age at which a connection that is kept open gives way to a fresh one,
	// so that certificates and the way to the server are checked, too.
	renewAfter = 3 * time.Minute
)

// timing is how often a tunnel is probed, and how long an answer may take.
type timing struct {
	interval       time.Duration
	first, confirm time.Duration
}

func timingOf(task Task, interval time.Duration) timing {
	if task.InUse {
		return timing{min(interval, usedInterval), usedFirstTimeout, usedConfirmTimeout}
	}
	return timing{interval, firstTimeout, confirmTimeout}
}

// lines are the connections through a tunnel that are kept from one round to the next.
type lines struct {
	kept *line // nil for none
	// silent is the question over an older connection that was not answered in the round
	// before, although a fresh one was; nil for none. TCP may bring it through yet: after a
	// loss of three seconds it tries again at the sixth.
	silent *question
}

func (l lines) count() int {
	count := 0
	if l.kept != nil {
		count++
	}
	if l.silent != nil {
		count++
	}
	return count
}

func (l lines) close() {
	l.kept.close()
	l.silent.giveUp()
}

// round is one look at a tunnel.
type round struct {
	timing

	dialer  Dialer
	task    Task
	connect time.Duration // the longest that a connect to the node's own end took
}

func (r *round) dial(ctx context.Context) (net.Conn, error) {
	if r.task.Direct.IsValid() {
		return r.dialer.Server(ctx, r.task.Direct, r.task.Peer)
	}
	began := time.Now()
	conn, err := r.dialer.Tunnel(ctx, r.task.Accept)
	if err == nil {
		r.connect = max(r.connect, time.Since(began))
	}
	return conn, err
}

// run asks over the connection that is kept open, and over a fresh one when there is none or it
// is old. Where an answer is missing it looks closer. The lines it returns are those to keep.
func (r *round) run(ctx context.Context, open lines) (Result, lines) {
	result := Result{Name: r.task.Name, Accept: r.task.Accept, Began: time.Now()}
	old := open.kept.ask(ctx)
	now, answered := old.within(r.first)
	if answered && (now.err != nil || time.Since(open.kept.opened) >= renewAfter) {
		if fresh := connect(ctx, r.dial, r.first); fresh.err == nil {
			open.kept.close()
			now = fresh
		} else {
			answered = false
			old.answers <- now
		}
	}
	if !answered {
		open.silent.giveUp()
		return r.doubt(ctx, old, result)
	}
	result.Took = now.took
	result.Direct = r.direct(ctx, r.task.Watch)
	result.Stuck = open.silent.isSilent(r.first + r.confirm)
	result.At = time.Now()
	if !result.Stuck {
		open.silent = nil
	}
	return result, lines{now.line, open.silent}
}

// doubt asks once more over a fresh connection, and meanwhile all servers directly, so that the
// cause is known in the same moment. The older connection has the same time.
func (r *round) doubt(ctx context.Context, old *question, result Result) (Result, lines) {
	var asking sync.WaitGroup
	asking.Go(func() { result.Direct = r.direct(ctx, r.task.Servers) })
	deadline := time.Now().Add(r.confirm)
	fresh := connect(ctx, r.dial, r.confirm)
	late, answered := old.within(time.Until(deadline))
	asking.Wait()
	result.Took, result.Err, result.At = fresh.took, fresh.err, time.Now()
	result.Established = fresh.err != nil && answered && late.err == nil
	result.Stuck = fresh.err == nil && !answered
	switch {
	case result.Stuck:
		return result, lines{fresh.line, old}
	case !answered:
		old.giveUp()
	case fresh.err == nil:
		late.line.close()
	default:
		return result, lines{kept: late.line}
	}
	return result, lines{kept: fresh.line}
}

// direct asks servers without the tunnel, all at once.
func (r *round) direct(ctx context.Context, servers []netip.AddrPort) map[netip.AddrPort]error {
	if len(servers) == 0 {
		return nil
	}
	errs := make([]error, len(servers))
	var asking sync.WaitGroup
	for i, server := range servers {
		asking.Go(func() {
			found := connect(ctx, func(ctx context.Context) (net.Conn, error) {
				return r.dialer.Server(ctx, server, r.task.Peer)
			}, r.confirm)
			found.line.close()
			errs[i] = found.err
		})
	}
	asking.Wait()
	found := make(map[netip.AddrPort]error, len(servers))
	for i, server := range servers {
		found[server] = errs[i]
	}
	return found
}
