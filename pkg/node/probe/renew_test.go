package probe

import (
	"testing"
	"testing/synctest"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
)

// The open connection is answered all the time, which says nothing of clients that have none.
func TestRenewingTaskIsProbedOverNewConnections(t *testing.T) {
	withManager(t, func(t *testing.T, d *fakeDialer, m *Manager, results <-chan Result) {
		<-results
		task := usedTask()
		task.Renew = true
		m.SetTasks(t.Context(), []Task{task})
		for range 2 {
			if r := <-results; r.Err != nil {
				t.Errorf("got %+v", r)
			}
		}
		synctest.Wait()
		if d.dials(accept) != 3 || d.openConnections() != 1 {
			t.Errorf("%d connections, of which %d are open; want a new one in each round, and one open", d.dials(accept), d.openConnections())
		}
		d.set(accept, refusingNew)
		if r := <-results; Reason(r.Err) != tunnelspec.ProbeRefused || !r.Established {
			t.Errorf("got %+v, want new connections refused and the old one established", r)
		}
	})
}
