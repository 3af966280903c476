package probe

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestLateRoundHasNoResult(t *testing.T) {
	lateBy := func(by time.Duration) func(func()) time.Duration {
		return func(do func()) time.Duration { do(); return by }
	}
	tests := map[string]struct {
		lateness func(func()) time.Duration
		connect  time.Duration
		late     bool
	}{
		"in time":                   {lateness, 0, false},
		"late within the limits":    {lateBy(maxLateness), maxConnect, false},
		"timers are too late":       {lateBy(maxLateness + 1), 0, true},
		"connecting takes too long": {lateness, maxConnect + 1, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			withManager(t, func(t *testing.T, d *fakeDialer, m *Manager, results <-chan Result) {
				<-results
				m.SetTasks(t.Context(), nil)
				m.lateness, d.connectDelay = tt.lateness, tt.connect
				d.set(one, refusing)
				task := unusedTask()
				task.AlsoProbe = task.Servers
				m.SetTasks(t.Context(), []Task{task})
				r := <-results
				hasResult := r.Err != nil || r.Direct != nil || !r.At.IsZero() || r.Stuck || r.Established
				if r.Late != tt.late || hasResult == tt.late {
					t.Errorf("got %+v, want late: %v", r, tt.late)
				}
			})
		})
	}
}

// A process that is stopped before its timers run, and is answered while it is, was late.
func TestLatenessBeginsWithTheRound(t *testing.T) {
	done := make(chan struct{})
	close(done)
	if got := timerLateness(time.Now().Add(-time.Minute), done); got < time.Minute {
		t.Errorf("a timer that was due a minute ago: got %s late", got)
	}
}

// helperTunnel has this test run as a process that probes the address.
const helperTunnel = "PROBE_HELPER_TUNNEL"

// A process that is stopped during a round reports neither a timeout nor a stuck connection.
func TestRoundOfStoppedProcessIsLate(t *testing.T) {
	if address := os.Getenv(helperTunnel); address != "" {
		printResults(t, netip.MustParseAddrPort(address))
		return
	}
	t.Parallel()
	server, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	calls := make(chan unanswered)
	go receiveCalls(t.Context(), server, calls)

	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRoundOfStoppedProcessIsLate$", "-test.timeout=1m")
	cmd.Env = append(os.Environ(), helperTunnel+"="+server.Addr().String())
	cmd.Stderr = os.Stderr
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }() // the test's end kills it
	defer func() { _ = cmd.Process.Kill() }()
	results := bufio.NewScanner(output)

	answering, stop := context.WithCancel(t.Context())
	answered := answerAll(answering, calls)
	until(t, results, "healthy", time.Now().Add(time.Hour))
	stop()
	<-answered
	last := <-calls
	stopped := time.Now() // a busy machine may have let the call time out before
	signal(t, cmd.Process, syscall.SIGSTOP)
	<-time.After(3 * time.Second) // longer than all timeouts of a round
	signal(t, cmd.Process, syscall.SIGCONT)
	last.answer()
	answerAll(t.Context(), calls)
	until(t, results, "late", stopped)
	until(t, results, "healthy", stopped)
}

// printResults is the process that is stopped.
func printResults(t *testing.T, address netip.AddrPort) {
	m := NewManager(&Network{}, usedInterval/10, func(_ context.Context, r Result) {
		switch {
		case r.Late:
			fmt.Println("result late")
		case r.Err == nil && !r.Stuck && !r.Established:
			fmt.Println("result healthy")
		default:
			fmt.Printf("result %d %+v\n", r.At.UnixNano(), r)
		}
	})
	m.SetTasks(t.Context(), []Task{{Name: "fs-1", Accept: address, InUse: true}})
	<-t.Context().Done()
}

// unanswered is a call and its connection.
type unanswered struct {
	conn  net.Conn
	reply []byte
}

func (u unanswered) answer() { _, _ = u.conn.Write(u.reply) } // the caller may have closed it

// answerAll answers calls until the context ends. It closes the channel then.
func answerAll(ctx context.Context, calls <-chan unanswered) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case c := <-calls:
				c.answer()
			case <-ctx.Done():
				return
			}
		}
	}()
	return ended
}

// receiveCalls sends each call to the channel.
func receiveCalls(ctx context.Context, server net.Listener, calls chan<- unanswered) {
	for {
		conn, err := server.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			for {
				message := make([]byte, 44) // a NULL call
				if _, err := io.ReadFull(conn, message); err != nil {
					return
				}
				select {
				case calls <- unanswered{conn, replyTo(message)}:
				case <-ctx.Done():
					return
				}
			}
		}()
	}
}

// until reads results up to the wanted one, which only healthy and late ones may precede, and any from
// before a time.
func until(t *testing.T, results *bufio.Scanner, want string, before time.Time) {
	t.Helper()
	const most = 20
	for range most {
		if !results.Scan() {
			t.Fatal("the process has ended")
		}
		switch got := strings.TrimPrefix(results.Text(), "result "); got {
		case want:
			return
		case "healthy", "late":
		default:
			at, _, _ := strings.Cut(got, " ")
			if nanoseconds, err := strconv.ParseInt(at, 10, 64); err != nil || !time.Unix(0, nanoseconds).Before(before) {
				t.Fatalf("the process reported %q", got)
			}
		}
	}
	t.Fatalf("no result of %d is %q", most, want)
}

func signal(t *testing.T, process *os.Process, s syscall.Signal) {
	t.Helper()
	if err := process.Signal(s); err != nil {
		t.Fatal(err)
	}
}
