package supervise

import (
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
)

const rejection = "!Connection rejected: create_client failed"

func TestStunnelThatRejectsConnectionsIsRestarted(t *testing.T) {
	s := newRunningSimulation(t, testConfig(1, 0, ""))
	s.advance(minRejecting).logs(rejection, rejection)
	s.wantSteps(t, "two connections rejected")
	if got := s.status(); got.State != tunnelspec.StateRunning || !got.Process.Is(tunnelspec.ReasonExhausted) || got.Problems[tunnelspec.ReasonExhausted] != 2 {
		t.Errorf("got %+v, want two problems of a running process", got)
	}
	s.connectsTo("10.0.0.1:2049")
	if s.reported.Process != nil {
		t.Errorf("got %+v after a connection, want no problem", s.reported.Process)
	}
	s.logs(rejection, "!Connection rejected: too many clients (>=500)")
	s.wantSteps(t, "two more, after one that was accepted")
	s.logs(rejection).wantSteps(t, "three in a row", "stop")
	s.exited("exit status 0", s.now)
	s.wantSteps(t, "it has exited", "start")
	if s.acceptsConfig(); s.reported.Process != nil || s.reported.Restarts != 1 {
		t.Errorf("got %+v and %d restarts, want no problem after one", s.reported.Process, s.reported.Restarts)
	}
}

// TestYoungStunnelThatRejectsConnectionsRunsOn, because the next process would do the same.
func TestYoungStunnelThatRejectsConnectionsRunsOn(t *testing.T) {
	s := newRunningSimulation(t, testConfig(1, 0, ""))
	s.advance(minRejecting-1).logs(rejection, rejection, rejection)
	s.wantSteps(t, "a young process rejects")
	s.advance(1).logs(rejection).wantSteps(t, "it still does", "stop")
}
