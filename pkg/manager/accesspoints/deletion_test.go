package accesspoints

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
)

func TestAccessPointThatIsNotTheVolumesIsKept(t *testing.T) {
	ours := efs.AccessPoint{ID: "fsap-1", FileSystemID: fs1, Token: "pvc-1", Path: "/pvc-1", Tags: map[string]string{wellknown.TagCluster: "c1"}}
	for name, tt := range map[string]struct {
		edit func(*efs.AccessPoint)
		kept bool
	}{
		"ours":                 {func(*efs.AccessPoint) {}, false},
		"without tags":         {func(p *efs.AccessPoint) { p.Tags = nil }, false},
		"another token":        {func(p *efs.AccessPoint) { p.Token = "of the driver" }, true},
		"another directory":    {func(p *efs.AccessPoint) { p.Path = "/" }, true},
		"another file system":  {func(p *efs.AccessPoint) { p.FileSystemID = "fs-2" }, true},
		"another cluster's":    {func(p *efs.AccessPoint) { p.Tags = map[string]string{wellknown.TagCluster: "c2"} }, true},
		"deleted by an admin":  {func(p *efs.AccessPoint) { p.ID = "fsap-2" }, false},
		"another user's claim": {func(p *efs.AccessPoint) { p.Token = "pvc-2" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				there := ours
				tt.edit(&there)
				api := &fakeAPI{calls: map[string]int{}, points: map[string]efs.AccessPoint{there.Token: there}}
				c := run(t, api, asIs)
				c.Delete(point("pvc-1"), "fsap-1")
				synctest.Wait()
				deleted, problem := c.Deleted("fsap-1")
				if !deleted || strings.Contains(problem.Message, "is kept") != tt.kept || (api.calls[deleteCall] == 0) != (tt.kept || there.ID != "fsap-1") {
					t.Errorf("deleted %v with %+v; calls %v", deleted, problem, api.calls)
				}
			})
		})
	}
}

func TestDeletionIsCalledOffWithThePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var retained atomic.Bool
		api := &fakeAPI{answer: func(call string, _ int) error {
			if call == deleteCall {
				return errors.New("connection reset")
			}
			return nil
		}}
		c := run(t, api, func(o *Options) { o.IsReleased = func(string) bool { return !retained.Load() } })
		c.Create(point("pvc-1"))
		synctest.Wait()
		id, _ := c.Made("pvc-1")
		c.Delete(point("pvc-1"), id)
		synctest.Wait()
		retained.Store(true)
		before := api.calls[deleteCall]
		<-time.After(time.Hour)
		if deleted, problem := c.Deleted(id); deleted || problem.Message != "" || before != 1 || api.calls[deleteCall] != 1 {
			t.Errorf("deleted %v with %+v, after %d calls and %d", deleted, problem, before, api.calls[deleteCall])
		}
	})
}

// TestCreationThatIsGivenUp has made an access point or not, which a listing shows once the call has ended.
func TestCreationThatIsGivenUp(t *testing.T) {
	refused := func(string, int) error { return errors.New("no permission") }
	for name, tt := range map[string]struct {
		api   *fakeAPI
		asked bool // before
		made  string
		calls int
	}{
		"before it was asked for":   {&fakeAPI{}, false, "", 0},
		"while AWS refuses it":      {&fakeAPI{answer: only(createCall, refused)}, true, "", 1},
		"after its answer was lost": {&fakeAPI{lose: only(createCall, refused)}, true, "fsap-1", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := run(t, tt.api, asIs)
				if tt.asked {
					c.Create(point("pvc-1"))
					synctest.Wait()
				}
				if c.GiveUp(point("pvc-1")) {
					t.Error("there is none, before a listing")
				}
				<-time.After(time.Hour)
				id, problem := c.Made("pvc-1")
				if none := c.GiveUp(point("pvc-1")); !none || id != tt.made || problem.Message != "" || tt.api.called(createCall) != tt.calls {
					t.Errorf("none %v, made %q with %+v after %d calls", none, id, problem, tt.api.called(createCall))
				}
				tt.api.answer, tt.api.lose = nil, nil
				c.Create(point("pvc-1")) // the claim is back
				synctest.Wait()
				if id, _ := c.Made("pvc-1"); id == "" {
					t.Error("it is not created for a claim that is back")
				}
			})
		})
	}
}

// only has a function called for one kind of call.
func only(call string, answer func(string, int) error) func(string, int) error {
	return func(c string, n int) error {
		if c == call {
			return answer(c, n)
		}
		return nil
	}
}

// TestListingDuringACreationDoesNotSettleIt: the one after it does.
func TestListingDuringACreationDoesNotSettleIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &slowAPI{fakeAPI: &fakeAPI{}, hold: make(chan struct{})}
		c := run(t, api, asIs)
		c.Create(point("pvc-1"))
		synctest.Wait()
		c.GiveUp(point("pvc-1"))
		synctest.Wait()
		if none := c.GiveUp(point("pvc-1")); none || api.called(listCall) != 1 {
			t.Errorf("none %v after %d listings, while it is created", none, api.called(listCall))
		}
		close(api.hold)
		synctest.Wait()
		if id, _ := c.Made("pvc-1"); id != "fsap-1" {
			t.Errorf("made %q", id)
		}
	})
}

// slowAPI creates access points when it is let.
type slowAPI struct {
	*fakeAPI
	hold chan struct{}
}

func (s *slowAPI) CreateAccessPoint(ctx context.Context, r efs.AccessPoint) (efs.AccessPoint, error) {
	<-s.hold
	return s.fakeAPI.CreateAccessPoint(ctx, r)
}
