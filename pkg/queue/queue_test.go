package queue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var errBoom = errors.New("boom")

// bench runs a queue with one worker in a synctest bubble and ends it with the test.
type bench struct {
	*Queue[string]
	log  bytes.Buffer
	done chan error
	end  context.CancelFunc
}

func start(t *testing.T, sync SyncFunc[string]) *bench {
	t.Helper()
	b := &bench{done: make(chan error, 1)}
	b.Queue = New(Options{
		Name: "test", KeyName: "claim", FirstRetry: time.Second, MaxRetry: 4 * time.Second, DrainTimeout: time.Minute,
		Log: slog.New(slog.NewTextHandler(&b.log, nil)),
	}, sync)
	ctx, cancel := context.WithCancel(t.Context())
	b.end = cancel
	go func() { b.done <- b.Run(ctx, 1, func() {}) }()
	synctest.Wait()
	return b
}

func (b *bench) stop(t *testing.T) {
	t.Helper()
	b.end()
	if err := <-b.done; err != nil {
		t.Error(err)
	}
}

func TestFailuresAreTriedAgainEverMoreSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var at []time.Duration
		b := start(t, func(context.Context, string) (time.Duration, error) {
			at = append(at, time.Since(begin))
			if len(at) < 6 {
				return 0, errBoom
			}
			return 0, nil
		})
		b.Add("a")
		<-time.After(time.Minute)
		b.stop(t)
		var waits []time.Duration
		for i := 1; i < len(at); i++ {
			waits = append(waits, at[i]-at[i-1])
		}
		want := []time.Duration{1 * time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second, 4 * time.Second}
		if len(waits) != len(want) {
			t.Fatalf("waits %v, want %v", waits, want)
		}
		for i := range want {
			if waits[i].Round(time.Second) != want[i] {
				t.Errorf("waits %v, want %v", waits, want)
				break
			}
		}
		if got := strings.Count(b.log.String(), "msg=\"sync failed\" controller=test claim=a err=boom"); got != 5 {
			t.Errorf("%d failures in the log, want 5:\n%s", got, b.log.String())
		}
	})
}

func TestTerminalErrorsWaitForAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		b := start(t, func(context.Context, string) (time.Duration, error) {
			calls++
			return 0, Terminal(errBoom)
		})
		b.Add("a")
		<-time.After(time.Hour)
		if calls != 1 {
			t.Errorf("%d syncs without an event, want 1", calls)
		}
		b.Add("a")
		synctest.Wait()
		b.stop(t)
		if calls != 2 {
			t.Errorf("%d syncs after an event, want 2", calls)
		}
	})
}

func TestSuccessMayAskForAnotherLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		b := start(t, func(context.Context, string) (time.Duration, error) {
			calls++
			return 10 * time.Second, nil
		})
		b.Add("a")
		<-time.After(35 * time.Second)
		b.stop(t)
		if calls != 4 {
			t.Errorf("%d syncs in 35 s, want 4", calls)
		}
	})
}

func TestOneFailingKeyDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var good time.Duration
		b := start(t, func(_ context.Context, key string) (time.Duration, error) {
			if key == "bad" {
				return 0, errBoom
			}
			good = time.Since(begin)
			return 0, nil
		})
		b.Add("bad")
		b.Add("good")
		synctest.Wait()
		b.stop(t)
		if good != 0 {
			t.Errorf("the good key waited %s", good)
		}
	})
}

func TestEndLetsRunningSyncsFinishAndBeginsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var finished []string
		b := start(t, func(ctx context.Context, key string) (time.Duration, error) {
			select {
			case <-time.After(30 * time.Second):
			case <-ctx.Done():
				t.Errorf("%s lost its context", key)
			}
			finished = append(finished, key)
			return 0, nil
		})
		b.Add("running")
		synctest.Wait()
		b.Add("waiting")
		b.stop(t)
		if len(finished) != 1 || finished[0] != "running" {
			t.Errorf("finished %v, want only the running one", finished)
		}
	})
}

func TestEndCutsOffWhatDoesNotFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, func(ctx context.Context, _ string) (time.Duration, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		b.Add("stuck")
		synctest.Wait()
		b.end()
		if err := <-b.done; err == nil || !strings.Contains(err.Error(), "loop test: syncs were cancelled after 1m0s") {
			t.Errorf("got %v", err)
		}
	})
}

// TestQueueThatDoesNotRunKeepsNoKeys as on a standby, where hundreds of thousands of claims come
// and go. Run adds what there is to do then.
func TestQueueThatDoesNotRunKeepsNoKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var synced []string
		q := New(Options{
			Name: "test", KeyName: "claim", FirstRetry: time.Second, MaxRetry: time.Second, DrainTimeout: time.Minute,
			Log: slog.New(slog.DiscardHandler),
		}, func(_ context.Context, key string) (time.Duration, error) {
			synced = append(synced, key)
			return 0, nil
		})
		for range 3 {
			q.Add("before")
			q.AddAfter("later", time.Second)
		}
		<-time.After(time.Minute)
		if q.Running() || q.keys.Len() != 0 {
			t.Errorf("running %v with %d keys, want none", q.Running(), q.keys.Len())
		}
		ctx, stop := context.WithCancel(t.Context())
		result := make(chan error)
		go func() {
			result <- q.Run(ctx, 1, func() {
				if !q.Running() {
					t.Error("an event that comes now is lost")
				}
				q.Add("all")
			})
		}()
		synctest.Wait()
		q.Add("event")
		synctest.Wait()
		stop()
		if err := <-result; err != nil {
			t.Error(err)
		}
		if want := []string{"all", "event"}; !slices.Equal(synced, want) {
			t.Errorf("synced %q, want %q", synced, want)
		}
	})
}

// TestInterruptedSyncsAreNotDrained: another process may do their work already.
func TestInterruptedSyncsAreNotDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := make(chan error, 1)
		q := New(Options{Name: "test", KeyName: "claim", DrainTimeout: time.Hour, Log: slog.New(slog.DiscardHandler)},
			func(ctx context.Context, _ string) (time.Duration, error) {
				<-ctx.Done()
				cause <- context.Cause(ctx)
				return 0, nil
			})
		ctx, end := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() { done <- q.Run(ctx, 1, func() { q.Add("a") }) }()
		synctest.Wait()
		interrupted := time.Now()
		end(fmt.Errorf("the lease is lost: %w", ErrInterrupted))
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := <-cause; !errors.Is(err, ErrInterrupted) || time.Since(interrupted) > 0 {
			t.Errorf("the sync ended after %s because of %v", time.Since(interrupted), err)
		}
	})
}
