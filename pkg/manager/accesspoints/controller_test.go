package accesspoints

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/smithy-go"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

const fs1 = "fs-1"

// fakeAPI creates one access point for each token, as EFS does.
type fakeAPI struct {
	mu     sync.Mutex
	points map[string]efs.AccessPoint // by token
	calls  map[string]int
	answer func(call string, n int) error // before the call is carried out
	lose   func(call string, n int) error // after it
}

func (f *fakeAPI) do(call string, carryOut func()) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls == nil {
		f.calls, f.points = map[string]int{}, map[string]efs.AccessPoint{}
	}
	f.calls[call]++
	if f.answer != nil {
		if err := f.answer(call, f.calls[call]); err != nil {
			return err
		}
	}
	carryOut()
	if f.lose != nil {
		return f.lose(call, f.calls[call])
	}
	return nil
}

// called returns the number of calls so far.
func (f *fakeAPI) called(call string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[call]
}

func (f *fakeAPI) CreateAccessPoint(_ context.Context, r efs.AccessPoint) (point efs.AccessPoint, err error) {
	err = f.do(createCall, func() {
		if _, exists := f.points[r.Token]; !exists {
			f.points[r.Token] = efs.AccessPoint{ID: fmt.Sprintf("fsap-%d", len(f.points)+1), FileSystemID: r.FileSystemID, Token: r.Token, Path: r.Path, User: r.User, Tags: r.Tags}
		}
		point = f.points[r.Token]
	})
	return point, err
}

func (f *fakeAPI) DeleteAccessPoint(_ context.Context, id string) error {
	return f.do(deleteCall, func() {
		for token, point := range f.points {
			if point.ID == id {
				delete(f.points, token)
			}
		}
	})
}

func (f *fakeAPI) FindAccessPoint(_ context.Context, id string) (point efs.AccessPoint, found bool, err error) {
	err = f.do("find", func() {
		for _, p := range f.points {
			if p.ID == id {
				point, found = p, true
			}
		}
	})
	return point, found, err
}

func (f *fakeAPI) ListAccessPoints(context.Context, string) (points []efs.AccessPoint, err error) {
	err = f.do(listCall, func() {
		for _, point := range f.points {
			points = append(points, point)
		}
	})
	return points, err
}

// run runs a loop with the API until the test ends.
func run(t *testing.T, api API, edit func(*Options)) *Controller {
	t.Helper()
	o := Options{
		API: api, Cluster: "c1", FileSystems: func() []string { return nil }, Begun: func() []volumes.Point { return nil },
		IsKnown: func(string) bool { return true }, Exists: func(string) bool { return false }, IsReleased: func(string) bool { return true },
		Interval: 2 * time.Hour, Log: slog.New(slog.DiscardHandler),
	}
	edit(&o)
	c := New(o)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = c.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	synctest.Wait()
	return c
}

func asIs(*Options) {}

func point(volume string) volumes.Point {
	return volumes.Point{FileSystemID: fs1, Volume: volume, Path: "/" + volume, UID: 1000, GID: 1000}
}

func throttled() error {
	return &smithy.GenericAPIError{Code: "ThrottlingException", Message: "Rate exceeded"}
}

func TestEveryLostAnswerMakesOneAccessPoint(t *testing.T) {
	lost := errors.New("connection reset")
	first := func(call string) func(string, int) error {
		return func(c string, n int) error {
			if c == call && n == 1 {
				return lost
			}
			return nil
		}
	}
	for name, api := range map[string]*fakeAPI{
		"before the creation": {answer: first(createCall)}, "after the creation": {lose: first(createCall)},
		"before the deletion": {answer: first(deleteCall)}, "after the deletion": {lose: first(deleteCall)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := run(t, api, asIs)
				c.Create(point("pvc-1"))
				<-time.After(time.Minute)
				id, problem := c.Made("pvc-1")
				if id != "fsap-1" || problem.Message != "" || len(api.points) != 1 {
					t.Fatalf("made %q, %+v of %d access points", id, problem, len(api.points))
				}
				c.Delete(point("pvc-1"), id)
				<-time.After(time.Minute)
				if deleted, problem := c.Deleted(id); !deleted || problem.Message != "" || len(api.points) != 0 {
					t.Errorf("deleted %v, %+v, %d are left", deleted, problem, len(api.points))
				}
			})
		})
	}
}

// A leader that died after its call is followed by one that knows nothing.
func TestNextLeaderFindsTheAccessPointByItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &fakeAPI{}
		for range 2 {
			c := run(t, api, asIs)
			c.Create(point("pvc-1"))
			synctest.Wait()
			if id, _ := c.Made("pvc-1"); id != "fsap-1" {
				t.Errorf("made %q", id)
			}
		}
		if len(api.points) != 1 || api.called(listCall) != 0 {
			t.Errorf("%d access points after %v", len(api.points), api.calls)
		}
	})
}

// AWS's rate is not published; the fake accepts two calls a second after a burst of ten.
func TestThousandAccessPointsUnderThrottling(t *testing.T) {
	const many = 1000
	synctest.Test(t, func(t *testing.T) {
		began, accepted := time.Now(), 0
		api := &fakeAPI{answer: func(string, int) error {
			if float64(accepted) >= 10+2*time.Since(began).Seconds() {
				return throttled()
			}
			accepted++
			return nil
		}}
		c := run(t, api, asIs)
		for i := range many {
			c.Create(point(fmt.Sprintf("pvc-%d", i)))
		}
		<-time.After(time.Hour)
		if len(api.points) != many || accepted != many || api.called(listCall) != 0 {
			t.Errorf("%d access points after %d accepted calls of %v", len(api.points), accepted, api.calls)
		}
		if refused := api.called(createCall) - accepted; refused > 2*many { // at random: each answer of AWS begins a new backoff
			t.Errorf("AWS throttled %d calls", refused)
		}
		if demand := c.Demand(); len(demand.AccessPoints) != many || !slices.Contains(demand.AccessPoints, ports.Key{FileSystem: fs1, AccessPoint: "fsap-1"}) {
			t.Errorf("ports are demanded for %d", len(demand.AccessPoints))
		}
	})
}

func TestFailureIsSaidUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var denied atomic.Bool
		denied.Store(true)
		api := &fakeAPI{answer: func(string, int) error {
			if denied.Load() {
				return errors.New("AccessDenied")
			}
			return nil
		}}
		c := run(t, api, asIs)
		c.Create(point("pvc-1"))
		c.Create(point("pvc-1"))
		synctest.Wait()
		if _, problem := c.Made("pvc-1"); !strings.HasPrefix(problem.Message, "AccessDenied") || api.called(createCall) != 1 {
			t.Errorf("got %+v after %v", problem, api.called(createCall))
		}
		denied.Store(false)
		<-time.After(maxRetry)
		if id, problem := c.Made("pvc-1"); id == "" || problem.Message != "" {
			t.Errorf("got %q, %+v", id, problem)
		}
	})
}

func TestGIDIsOfNoOtherAccessPoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &fakeAPI{points: map[string]efs.AccessPoint{"x": {ID: "fsap-x", User: &efs.PosixUser{UID: 7, GID: 1001}}}, calls: map[string]int{}}
		c := run(t, api, func(o *Options) {
			o.FileSystems = func() []string { return []string{fs1} }
			o.Begun = func() []volumes.Point {
				return []volumes.Point{
					{FileSystemID: fs1, Volume: "pvc-begun", UID: 1000, GID: 1003, Allocated: 1000}, // of a class with a gid
					{FileSystemID: fs1, Volume: "pvc-of-a-user", UID: 1003, GID: 1003},
				}
			}
		})
		gid := func(volume string) int {
			got, _ := c.GID(fs1, volume, 1000, 1003)
			return got
		}
		if a, b, again, begun := gid("pvc-a"), gid("pvc-b"), gid("pvc-a"), gid("pvc-begun"); a != 1002 || b != 1003 || again != a || begun != 1000 {
			t.Errorf("got %d, %d, %d and %d", a, b, again, begun)
		}
		if got, wait := c.GID(fs1, "pvc-c", 1000, 1003); got != 0 || wait == "" {
			t.Errorf("got %d, %q of a full range", got, wait)
		}
		if api.called(listCall) != 1 {
			t.Errorf("listed %d times", api.called(listCall))
		}
	})
}

func TestAccessPointsOfNoVolume(t *testing.T) {
	tags := map[string]string{wellknown.TagCluster: "c1", wellknown.TagVolume: "pvc-1"}
	c := New(Options{Cluster: "c1", IsKnown: func(volume string) bool { return volume == "pvc-2" }, Log: slog.New(slog.DiscardHandler)})
	for name, tt := range map[string]struct {
		tags map[string]string
		want string
	}{
		"of a volume that is gone":     {tags, "pvc-1"},
		"of a volume that is there":    {map[string]string{wellknown.TagCluster: "c1", wellknown.TagVolume: "pvc-2"}, ""},
		"of another cluster":           {map[string]string{wellknown.TagCluster: "c2", wellknown.TagVolume: "pvc-1"}, ""},
		"that something else has made": {nil, ""},
	} {
		if got := c.orphanOf(efs.AccessPoint{ID: "fsap-1", Tags: tt.tags}); got != tt.want {
			t.Errorf("an access point %s is of %q, want %q", name, got, tt.want)
		}
	}
}

func TestAccessPointThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := run(t, &fakeAPI{}, func(o *Options) { o.FileSystems = func() []string { return []string{fs1} } })
		c.Create(point("pvc-1"))
		synctest.Wait()
		if c.IsMissing(fs1, "fsap-1") || !c.IsMissing(fs1, "fsap-2") || c.IsMissing("fs-2", "fsap-2") {
			t.Error("a list is read wrong")
		}
	})
}

// TestAccessPointOfANewClassIsObserved though no class of its file system was there when the loop began.
func TestAccessPointOfANewClassIsObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, known := &fakeAPI{}, atomic.Bool{}
		known.Store(true)
		c := run(t, api, func(o *Options) { o.IsKnown = func(string) bool { return known.Load() } })
		c.Create(point("pvc-1"))
		<-time.After(3 * time.Hour) // one listing
		if c.IsMissing(fs1, "fsap-1") || len(c.Demand().AccessPoints) != 1 || api.called(listCall) != 1 {
			t.Errorf("it is missing: %v, after %d listings; ports are demanded for %v", c.IsMissing(fs1, "fsap-1"), api.called(listCall), c.Demand())
		}
		_ = api.DeleteAccessPoint(t.Context(), "fsap-1") // by an administrator
		<-time.After(2 * time.Hour)
		if !c.IsMissing(fs1, "fsap-1") {
			t.Error("a made access point that is gone is not missing")
		}
		known.Store(false)
		<-time.After(2 * time.Hour)
		if demand := c.Demand(); len(demand.AccessPoints) != 0 {
			t.Errorf("volume, claim and Jobs are gone, and ports are demanded for %v", demand)
		}
	})
}

func TestWithoutAPIAccessPointsSayWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := run(t, nil, asIs)
		c.Create(point("pvc-1"))
		synctest.Wait()
		if _, problem := c.Made("pvc-1"); problem.Message == "" {
			t.Error("nothing is said")
		}
	})
}

// An installation without such classes makes no call that it did not make before.
func TestWithoutAccessPointsNothingIsCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &fakeAPI{}
		run(t, api, asIs)
		<-time.After(24 * time.Hour)
		if len(api.calls) != 0 {
			t.Errorf("called %v", api.calls)
		}
	})
}

// TestFileSystemThatIsGoneIsListedNoMore until its access points are needed again.
func TestFileSystemThatIsGoneIsListedNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &fakeAPI{answer: func(call string, n int) error {
			if call == listCall && n > 1 {
				return &smithy.GenericAPIError{Code: "FileSystemNotFound"}
			}
			return nil
		}}
		c := run(t, api, func(o *Options) { o.FileSystems = func() []string { return []string{fs1} } })
		synctest.Wait()
		if !c.IsMissing(fs1, "fsap-1") {
			t.Error("an access point that is not listed is not missing")
		}
		<-time.After(24 * time.Hour)
		if c.IsMissing(fs1, "fsap-1") || api.called(listCall) != 2 {
			t.Errorf("%d listings in a day; missing: %v", api.called(listCall), c.IsMissing(fs1, "fsap-1"))
		}
		if gid, why := c.GID(fs1, "pvc-1", 1000, 1003); gid != 0 || !strings.Contains(why, "--aws-region") {
			t.Errorf("got %d, %q", gid, why)
		}
		<-time.After(maxRetry + time.Second)
		if api.called(listCall) != 3 {
			t.Errorf("%d listings after one was asked for", api.called(listCall))
		}
	})
}

// TestFailedListingIsTriedAgainAtItsTime, whatever waits for it, and whatever its error says each time.
func TestFailedListingIsTriedAgainAtItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &fakeAPI{answer: func(_ string, n int) error { return fmt.Errorf("read udp 10.0.0.1:%d->10.0.0.2:53: timeout", 40000+n) }}
		c := run(t, api, func(o *Options) { o.FileSystems = func() []string { return []string{fs1} } })
		changes := 0
		c.OnChange(func(string) {
			changes++
			c.GID(fs1, "pvc-1", 1000, 1003)
		}, func() {})
		for range 60 { // a claim that waits is decided about each minute
			c.GID(fs1, "pvc-1", 1000, 1003)
			<-time.After(time.Minute)
		}
		if n := api.called(listCall); n < 10 || n > 35 || changes > 2 {
			t.Errorf("%d calls and %d changes in an hour", n, changes)
		}
	})
}
