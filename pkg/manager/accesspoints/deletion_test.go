package accesspoints

import (
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
