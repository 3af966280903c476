package agent

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/node/confdir"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
)

func TestStoredTimesInTheFutureAreDropped(t *testing.T) {
	dir, err := confdir.Open(filepath.Join(t.TempDir(), "stunnel.conf"))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	before := &Agent{options: Options{Dir: dir}, states: map[string]routing.State{
		"fs-1": {Port: 20490, Restarts: 1, RestartedAt: began.Add(24 * time.Hour)},
		"fs-2": {Port: 20491, Restarts: 1, RestartedAt: began.Add(-time.Second)},
	}}
	if err := before.save(); err != nil {
		t.Fatal(err)
	}
	a := &Agent{options: Options{Dir: dir}, states: map[string]routing.State{}, started: began}
	if err := a.loadState(); err != nil {
		t.Fatal(err)
	}
	if got := a.states["fs-1"]; got.Port != 20490 || !got.RestartedAt.IsZero() {
		t.Errorf("got %+v, want no time of a restart that is to come", got)
	}
	if got := a.states["fs-2"].RestartedAt; began.Sub(got) != time.Second || !strings.Contains(got.String(), " m=") {
		t.Errorf("got %s, want a second ago by the monotonic clock, which cannot be set back", got)
	}
}
