package table

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/test/support/efstest"
)

func pointOf(id string) ports.Key {
	return ports.Key{FileSystem: "fs-1", AccessPoint: id}
}

func demands(keys ...ports.Key) func(*fixture) {
	return func(s *fixture) { s.demand = ports.Demand{Known: true, AccessPoints: keys, IAM: keys} }
}

func answered(key ports.Key, a pointAnswer) func(*fixture) {
	return func(s *fixture) { s.inventory.points = map[ports.Key]pointAnswer{key: a} }
}

// TestAccessPointsGetPortsWhenTheyAreConfirmed, by whoever can: an invented one costs no port.
func TestAccessPointsGetPortsWhenTheyAreConfirmed(t *testing.T) {
	key := pointOf("fsap-1")
	is := func(fileSystem string, state efs.LifeCycleState) pointAnswer {
		return pointAnswer{known: true, point: efs.AccessPoint{ID: "fsap-1", FileSystemID: fileSystem, State: state}}
	}
	withPort := target(20490)
	withPort.AccessPoints = map[string]ports.AccessPoint{"fsap-1": {Port: 20495}}
	pins := func(points map[string]ports.AccessPoint) func(*fixture) {
		return func(s *fixture) {
			s.pinned.table = &ports.Table{Targets: map[string]ports.Target{"fs-1": {AccessPoints: points}}}
		}
	}
	listed := polled(found(listing(1, fileSystem("fs-1", "a"))))
	tests := map[string]struct {
		table ports.Target
		edits []func(*fixture)
		want  targets.Tunnel // the problem is a part
	}{
		"available":            {target(20490), []func(*fixture){listed, answered(key, is("fs-1", efs.Available))}, targets.Tunnel{Port: 20491, IAM: true}},
		"not asked for yet":    {target(20490), []func(*fixture){listed}, targets.Tunnel{Problem: "being looked up"}},
		"not to be read":       {target(20490), []func(*fixture){listed, answered(key, pointAnswer{err: errBoom})}, targets.Tunnel{Problem: "could not be looked up: boom"}},
		"not there":            {target(20490), []func(*fixture){listed, answered(key, pointAnswer{known: true})}, targets.Tunnel{Problem: "does not exist", Terminal: true}},
		"another one's":        {target(20490), []func(*fixture){listed, answered(key, is("fs-2", efs.Available))}, targets.Tunnel{Problem: "one of file system fs-2", Terminal: true}},
		"creating":             {target(20490), []func(*fixture){listed, answered(key, is("fs-1", efs.Creating))}, targets.Tunnel{Problem: "still being created"}},
		"deleting":             {target(20490), []func(*fixture){listed, answered(key, is("fs-1", efs.Deleting))}, targets.Tunnel{Problem: `in state "deleting"`, Terminal: true}},
		"served, and unheard":  {withPort, []func(*fixture){listed}, targets.Tunnel{Port: 20495, IAM: true}},
		"served, and unread":   {withPort, []func(*fixture){listed, answered(key, pointAnswer{err: errBoom})}, targets.Tunnel{Port: 20495, IAM: true}},
		"served, and gone":     {withPort, []func(*fixture){listed, answered(key, pointAnswer{known: true})}, targets.Tunnel{Port: 20495, IAM: true, Problem: "does not exist", Terminal: true}},
		"pinned":               {target(20490), []func(*fixture){pins(map[string]ports.AccessPoint{"fsap-1": {}})}, targets.Tunnel{Port: 20491, IAM: true}},
		"pinned without it":    {target(20490), []func(*fixture){pins(nil)}, targets.Tunnel{Problem: "ConfigMap efs-stunnel-pinned has no access point fsap-1", Terminal: true}},
		"on a missing one":     {target(20490), []func(*fixture){polled(found(listing(1, fileSystem("fs-2", "a"))))}, targets.Tunnel{Problem: "being looked up"}},
		"before the first one": {target(20490), nil, targets.Tunnel{Problem: "being looked up"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := given(tableOf(map[string]ports.Target{"fs-1": tt.table}), append(tt.edits, demands(key))...)
			p := s.plan(options())
			got := p.snapshot.Tunnels[key]
			if tt.want.Problem != "" && strings.Contains(got.Problem, tt.want.Problem) {
				got.Problem = tt.want.Problem
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("tunnel mismatch (-want +got):\n%s", diff)
			}
			if port, _ := p.table.Port(key); port != tt.want.Port {
				t.Errorf("the table has port %d", port)
			}
		})
	}
}

func TestAccessPointsInMetrics(t *testing.T) {
	got := countPoints(map[ports.Key]targets.Tunnel{
		pointOf(""):       {},
		pointOf("fsap-1"): {Port: 20491},
		pointOf("fsap-2"): {Port: 20492, Problem: "gone", Terminal: true},
		pointOf("fsap-3"): {Problem: "soon"},
		pointOf("fsap-4"): {},
	})
	if diff := cmp.Diff(map[string]float64{usable: 1, unusable: 1, waiting: 2}, got); diff != "" {
		t.Errorf("counts mismatch (-want +got):\n%s", diff)
	}
}

// TestAccessPointsAreDescribedOnDemand only: most clusters have none.
func TestAccessPointsAreDescribedOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := efstest.New(fileSystem("fs-1", "a"), fileSystem("fs-2", "a"))
		api.PutAccessPoint(efs.AccessPoint{ID: "fsap-1", FileSystemID: "fs-1", State: efs.Available})
		api.PutAccessPoint(efs.AccessPoint{ID: "fsap-2", FileSystemID: "fs-2", State: efs.Available})
		p, counts := startPoller(t, api)
		pass(time.Hour)
		if got := api.Calls().Points; got != 0 {
			t.Fatalf("%d calls without a demand", got)
		}
		right, wrong, none := pointOf("fsap-1"), pointOf("fsap-2"), pointOf("fsap-3")
		for range 2 {
			p.ask(nil, []ports.Key{right, wrong, none})
			synctest.Wait()
		}
		if got := api.Calls().Points; got != 3 { // one list, and two that it lacks
			t.Errorf("%d calls, want 3", got)
		}
		answers := p.latest().points
		if !answers[none].known || answers[none].point.ID != "" || answers[wrong].point.FileSystemID != "fs-2" || answers[right].point.ID != "fsap-1" {
			t.Errorf("got %+v", answers)
		}
		api.FailAccessPoints(errBoom)
		pass(70 * time.Second)
		kept := p.latest().points[right]
		if !kept.known || kept.point.ID != "fsap-1" || kept.err == nil || counts.failed.Load() == 0 {
			t.Errorf("after a failure: %+v", kept)
		}
		p.ask(nil, nil)
		synctest.Wait()
		if got := p.latest().points; len(got) > 0 {
			t.Errorf("there is no demand, and there is %+v", got)
		}
	})
}

// TestInventedAccessPointsCostFewCalls: every user who may create SharedVolumes can request them.
func TestInventedAccessPointsCostFewCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := efstest.New(fileSystem("fs-1", "a"))
		p, _ := startPoller(t, api)
		var keys []ports.Key
		for i := range 1000 {
			keys = append(keys, pointOf("fsap-"+strings.Repeat("0", i%40+1)+string(rune('a'+i/40))))
		}
		p.ask(nil, keys)
		synctest.Wait()
		if got := api.Calls().Points; got != 1+maxFinds {
			t.Errorf("%d calls", got)
		}
		for _, key := range keys {
			if a := p.latest().points[key]; !a.known || a.point.ID != "" {
				t.Fatalf("%s: %+v", key, a)
			}
		}
	})
}

// TestDemandIsServed from the question to the ConfigMap.
func TestDemandIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := efstest.New(fileSystem("fs-1", "a"))
		api.PutAccessPoint(efs.AccessPoint{ID: "fsap-1", FileSystemID: "fs-1", State: efs.Available})
		c := start(t, api)
		key := pointOf("fsap-1")
		asked := ports.Demand{Known: true, AccessPoints: []ports.Key{key}}
		c.options.Demand = func() ports.Demand { return asked }
		c.DemandChanged()
		pass(time.Second)
		if got := c.Snapshot().Tunnels[key]; got.Port != 20491 || got.Problem != "" {
			t.Errorf("got %+v", got)
		}
		if text := c.configMap().Data[wellknown.TargetsKey]; !strings.Contains(text, "fsap-1") {
			t.Errorf("the table is\n%s", text)
		}
		api.FailAccessPoints(errBoom)
		pass(2 * time.Minute)
		c.wantEvent("DiscoveryFailed access points of fs-1 could not be read")
		asked.AccessPoints = nil
		c.DemandChanged()
		pass(time.Second)
		if text := c.configMap().Data[wellknown.TargetsKey]; strings.Contains(text, "fsap-1") {
			t.Errorf("the table still is\n%s", text)
		}
	})
}
