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
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestLateRoundTellsNothing(t *testing.T) {
	stopped := func(by time.Duration) func(func()) time.Duration {
		return func(do func()) time.Duration { do(); return by }
	}
	tests := map[string]struct {
		lateness func(func()) time.Duration
		slow     time.Duration // a connect
		late     bool
	}{
		"in time":                     {lateness, 0, false},
		"in time, though not at once": {stopped(maxLateness), maxConnect, false},
		"timers are late":             {stopped(maxLateness + 1), 0, true},
		"a connect is slow":           {lateness, maxConnect + 1, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			watched(t, func(t *testing.T, n *network, f *Fleet, results <-chan Result) {
				<-results
				f.Watch(t.Context(), nil)
				f.lateness, n.slow = tt.lateness, tt.slow
				n.set(one, refusing)
				task := idle()
				task.Watch = task.Servers
				f.Watch(t.Context(), []Task{task})
				r := <-results
				told := r.Err != nil || r.Direct != nil || !r.At.IsZero() || r.Stuck || r.Established
				if r.Late != tt.late || told == tt.late {
					t.Errorf("got %+v, want late: %v", r, tt.late)
				}
			})
		})
	}
}

// helperTunnel has this test run as a process that probes the address.
const helperTunnel = "PROBE_HELPER_TUNNEL"

// A process that is stopped in the middle of a round finds nothing: neither a server that is
// silent nor a connection that is stuck.
func TestStoppedProcessFindsNothing(t *testing.T) {
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
	go accepted(t.Context(), server, calls)

	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestStoppedProcessFindsNothing$", "-test.timeout=1m")
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
	until(t, results, "well")
	stop()
	<-answered
	last := <-calls
	signal(t, cmd.Process, syscall.SIGSTOP)
	<-time.After(3 * time.Second) // longer than all timeouts of a round
	signal(t, cmd.Process, syscall.SIGCONT)
	last.answer()
	answerAll(t.Context(), calls)
	until(t, results, "late")
	until(t, results, "well")
}

// printResults is the process that is stopped.
func printResults(t *testing.T, address netip.AddrPort) {
	f := NewFleet(&Network{}, usedInterval/10, func(_ context.Context, r Result) {
		switch {
		case r.Late:
			fmt.Println("result late")
		case r.Err == nil && !r.Stuck && !r.Established:
			fmt.Println("result well")
		default:
			fmt.Printf("result %+v\n", r)
		}
	})
	f.Watch(t.Context(), []Task{{Name: "fs-1", Accept: address, InUse: true}})
	<-t.Context().Done()
}

// unanswered is a call and its connection.
type unanswered struct {
	conn  net.Conn
	reply []byte
}

func (u unanswered) answer() { _, _ = u.conn.Write(u.reply) } // the caller may have closed it

// answerAll says when it has ended.
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

// accepted hands on each call.
func accepted(ctx context.Context, server net.Listener, calls chan<- unanswered) {
	for {
		conn, err := server.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			for {
				message := make([]byte, len(call(0)))
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

// until reads results to the one that is wanted, and wants no findings before.
func until(t *testing.T, results *bufio.Scanner, want string) {
	t.Helper()
	const most = 20
	for range most {
		if !results.Scan() {
			t.Fatal("the process has ended")
		}
		switch got := strings.TrimPrefix(results.Text(), "result "); got {
		case want:
			return
		case "well", "late":
		default:
			t.Fatalf("the process found %q", got)
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
