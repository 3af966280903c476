package table

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/test/support/efstest"
)

// hanging is an API that answers nothing until its callers give up.
type hanging struct{}

func (hanging) ListFileSystems(ctx context.Context) (efs.Listing, error) {
	<-ctx.Done()
	return efs.Listing{}, ctx.Err()
}

func (hanging) FileSystemExists(ctx context.Context, _ string) (bool, error) {
	<-ctx.Done()
	return false, ctx.Err()
}

func (hanging) ListAccessPoints(ctx context.Context, _ string) ([]efs.AccessPoint, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hanging) FindAccessPoint(ctx context.Context, _ string) (efs.AccessPoint, bool, error) {
	<-ctx.Done()
	return efs.AccessPoint{}, false, ctx.Err()
}

type pollCounts struct{ failed, changed atomic.Int32 }

// startPoller runs one until the test ends, inside a bubble.
func startPoller(t *testing.T, api API) (*poller, *pollCounts) {
	t.Helper()
	counts := &pollCounts{}
	o := options()
	o.Log = slog.New(slog.DiscardHandler)
	p := newPoller(api, o, func() { counts.failed.Add(1) }, func() { counts.changed.Add(1) })
	ctx, end := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.run(ctx)
	}()
	t.Cleanup(func() {
		end()
		<-done
	})
	synctest.Wait()
	return p, counts
}

// pass lets time go by, and everything that is due in it happen.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestPollsComeWithJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := efstest.New()
		startPoller(t, api)
		pass(59 * time.Second)
		if got := api.Calls().List; got != 1 {
			t.Errorf("%d polls in the first interval, want 1", got)
		}
		pass(59 * 110 * time.Second)
		if got := api.Calls().List; got < 98 || got > 108 {
			t.Errorf("%d polls in 109 minutes, want about 103", got)
		}
	})
}

func TestKicksAreAtMostOnePollInTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := efstest.New()
		p, _ := startPoller(t, api)
		for range 295 { // polls are due at 0, 10 and 20 s
			p.kick()
			pass(100 * time.Millisecond)
		}
		if got := api.Calls().List; got != 3 {
			t.Errorf("%d polls in half a minute, want 3", got)
		}
		pass(20 * time.Second)
		before := api.Calls().List
		p.kick()
		synctest.Wait()
		if got := api.Calls().List; got != before+1 {
			t.Errorf("a kick after a quiet time gave %d polls, want 1 at once", got-before)
		}
	})
}

func TestFailedPollsAreTriedAgainWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := efstest.New(fileSystem("fs-1", "a"))
		api.FailList(errBoom)
		startPoller(t, api)
		pass(31 * time.Second)
		// The first wait is from 10 to 30 s by chance, and the second one at least 15 s.
		if got := api.Calls().List; got < 2 || got > 3 {
			t.Errorf("%d polls in the first half minute, want 2 or 3", got)
		}
		pass(10 * time.Minute)
		if got := api.Calls().List; got < 11 || got > 25 {
			t.Errorf("%d polls in 10 minutes, want one in each interval of a minute, or somewhat more", got)
		}
		api.FailList(nil)
		pass(70 * time.Second)
		before := api.Calls().List
		pass(59 * time.Second)
		if got := api.Calls().List - before; got > 1 {
			t.Errorf("%d polls within an interval after an answer, want 1", got)
		}
	})
}

func TestFailedPollsKeepTheLastListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := efstest.New(fileSystem("fs-1", "a"))
		api.FailList(errBoom)
		p, counts := startPoller(t, api)
		if f := p.latest(); !f.polled || f.listed() || f.failure == nil || counts.failed.Load() != 1 {
			t.Errorf("after a failure: %+v", f)
		}
		api.FailList(nil)
		pass(70 * time.Second)
		good := p.latest()
		if !good.listed() || good.failure != nil || len(good.listing.FileSystems) != 1 {
			t.Errorf("after an answer: %+v", good)
		}
		api.FailList(errBoom)
		pass(70 * time.Second)
		if f := p.latest(); f.failure == nil || !f.listing.ReadAt.Equal(good.listing.ReadAt) || !f.succeeded.Equal(good.succeeded) {
			t.Errorf("after another failure: %+v", f)
		}
	})
}

func TestAHangingAPIIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, counts := startPoller(t, hanging{})
		if p.latest().polled || counts.changed.Load() != 0 {
			t.Error("the first poll counts as over while it hangs")
		}
		pass(pollTimeout)
		if !p.latest().polled || counts.failed.Load() != 1 {
			t.Errorf("after the limit: %+v", p.latest())
		}
	})
}

// TestHangingCallEndsWithTheLoop: the next leader waits for the end of this one.
func TestHangingCallEndsWithTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options()
		o.Log = slog.New(slog.DiscardHandler)
		ctx, end := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, end)
		begun := time.Now()
		newPoller(hanging{}, o, func() {}, func() {}).run(ctx)
		if took := time.Since(begun); took != time.Second {
			t.Errorf("ended after %s, want the second after which it was asked to", took)
		}
	})
}

// TestQuestionsToAHangingAPIEndTogether: a healthy leader is not restarted because of an outage of AWS.
func TestQuestionsToAHangingAPIEndTogether(t *testing.T) {
	asks := map[string]func(*poller, context.Context){"access points": (*poller).describe, "missing file systems": (*poller).confirm}
	for name, ask := range asks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := options()
				o.Log = slog.New(slog.DiscardHandler)
				p := newPoller(hanging{}, o, func() {}, func() {})
				for n := range 30 {
					id := fmt.Sprint("fs-", n)
					p.missing = append(p.missing, id)
					p.points = append(p.points, ports.Key{FileSystem: id, AccessPoint: "fsap-1"})
				}
				begun := time.Now()
				ask(p, t.Context())
				if took := time.Since(begun); took != pollTimeout {
					t.Errorf("took %s, want %s for all", took, pollTimeout)
				}
				over, end := context.WithCancel(t.Context())
				end()
				p.run(over)
			})
		})
	}
}

// noNetwork has another text for each error, as the resolver's have another port.
type noNetwork struct {
	hanging
	calls *int
}

func (n noNetwork) ListAccessPoints(context.Context, string) ([]efs.AccessPoint, error) {
	*n.calls++
	return nil, fmt.Errorf("lookup elasticfilesystem: read udp 10.0.1.5:%d->10.0.0.2:53: i/o timeout", 50000+*n.calls)
}

// TestNewTextOfAnErrorIsNoNews: SharedVolumes have the API polled when what the snapshot says of them changes.
func TestNewTextOfAnErrorIsNoNews(t *testing.T) {
	o, calls := options(), 0
	o.Log = slog.New(slog.DiscardHandler)
	p := newPoller(noNetwork{calls: &calls}, o, func() {}, func() {})
	key := ports.Key{FileSystem: "fs-1", AccessPoint: "fsap-1"}
	p.points = []ports.Key{key}
	p.describe(t.Context())
	first := fmt.Sprint(p.latest().points[key].err)
	p.describe(t.Context())
	if again := fmt.Sprint(p.latest().points[key].err); !strings.Contains(first, "i/o timeout") || again != first || calls != 2 {
		t.Errorf("%s, and then %s, after %d calls", first, again, calls)
	}
}

func TestQuestionsAreAskedOnceForEachListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := efstest.New(fileSystem("fs-1", "a"))
		api.FailExists("fs-3", errBoom)
		p, _ := startPoller(t, api)
		ids := []string{"fs-1", "fs-2", "fs-3"}
		for range 2 {
			p.ask(ids, nil)
			synctest.Wait()
		}
		f := p.latest()
		if got := api.Calls().Exists; got != 3 || len(f.unconfirmed(ids)) > 0 {
			t.Errorf("%d questions, want 3; unconfirmed %v", got, f.unconfirmed(ids))
		}
		if diff := cmp.Diff([]string{"fs-2"}, f.gone(ids)); diff != "" {
			t.Errorf("gone (-want +got):\n%s", diff)
		}
		pass(70 * time.Second)
		api.FailExists("fs-2", errBoom)
		f = p.latest()
		if diff := cmp.Diff(ids, f.unconfirmed(ids)); diff != "" {
			t.Errorf("unconfirmed after a new listing (-want +got):\n%s", diff)
		}
		p.ask([]string{"fs-2"}, nil)
		synctest.Wait()
		f = p.latest()
		if !f.existence["fs-2"].gone || f.existence["fs-2"].err == nil || len(f.existence) != 1 {
			t.Errorf("an error changed the answer, or others stay: %+v", f.existence)
		}
	})
}
