package front

import (
	"net"
	"time"

	"gnuthought.com/efs-stunnel/pkg/node/lanes"
)

// prepare opens the first lane before the first record that needs one. Calls of the null procedure need no
// greeting: probes send nothing else, and must not take longer for it.
func (m *mount) prepare(h lanes.Header) error {
	if m.greeted || h.Null && m.count() > 0 {
		return nil
	}
	want, answer := 1, lanes.Answer{}
	if !h.Null {
		m.greeted = true
		want, answer = m.greet()
	}
	if m.count() == 0 {
		conn, err := m.front.dial()
		if err != nil {
			return err
		}
		m.add(conn)
	}
	if want > 1 {
		go m.scale(lanes.NewScaler(want, answer))
	}
	return nil
}

// greet returns how many lanes the mount may have. Of a server with partitions, it opens the first one.
func (m *mount) greet() (int, lanes.Answer) {
	f := m.front
	if pinned := int(f.pinned.Load()); pinned > 1 {
		return min(pinned, f.lanes), lanes.Answer{BytesPerSecond: f.busyRate.Load()}
	}
	now := time.Now()
	if now.UnixNano() < f.restUntil.Load() {
		return 1, lanes.Answer{}
	}
	conn, answer, err := f.dialGreeted(m.id)
	if err != nil {
		f.restUntil.Store(now.Add(lanes.SearchPause).UnixNano())
		f.log.Info("connections have one lane for now", "err", err, "requeueAfter", lanes.SearchPause)
		return 1, lanes.Answer{}
	}
	if !m.dropIdle() {
		_ = conn.Close() // a call of the null procedure waits on a lane without a partition
		return 1, lanes.Answer{}
	}
	m.partition = answer.Partition
	m.add(conn)
	return f.lanes, answer
}

func (m *mount) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.lanes)
}

// dropIdle drops all lanes if nothing waits on any.
func (m *mount) dropIdle() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.schedule.Waiting() > 0 {
		return false
	}
	for id := range m.lanes {
		m.drop(id)
	}
	return true
}

// drop closes a lane on which nothing waits. The caller holds mu.
func (m *mount) drop(id int) {
	m.schedule.Remove(id)
	_ = m.lanes[id].conn.Close()
	delete(m.lanes, id)
	m.front.openLanes.Add(-1)
}

// scale adds and drops lanes until the mount ends.
func (m *mount) scale(s lanes.Scaler) {
	defer m.recover()
	ticker := time.NewTicker(lanes.SampleInterval)
	defer ticker.Stop()
	for {
		select {
		case <-m.done:
			return
		case now := <-ticker.C:
			switch n := s.Sample(now, m.bytes.Swap(0), m.count()); {
			case n > 0 && m.sessions.Load() && now.UnixNano() >= m.front.restUntil.Load():
				if !m.grow(n) {
					s.Rest(time.Now().Add(lanes.SearchPause))
				}
				m.front.log.Info("lanes added", "used", m.count())
			case n < 0:
				m.dropSpare()
			}
		}
	}
}

func (m *mount) dropSpare() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if id, ok := m.schedule.Spare(); ok {
		m.drop(id)
	}
}

// opened is the outcome of a connection that a search has asked for.
type opened struct {
	conn   net.Conn
	answer lanes.Answer
	err    error
}

// grow searches more lanes of the mount's partition. It reports whether it found as many.
func (m *mount) grow(n int) bool {
	search, results := lanes.NewSearch(m.partition, n, time.Now()), make(chan opened)
	for {
		for range search.Open(time.Now()) {
			go func() { m.open(results) }()
		}
		if search.Opening() == 0 {
			return search.Found()
		}
		select {
		case <-m.done:
			return true
		case o := <-results:
			m.opened(search, o)
		}
	}
}

func (m *mount) open(results chan<- opened) {
	defer m.recover()
	var o opened
	if m.partition == nil {
		o.conn, o.err = m.front.dial()
	} else {
		o.conn, o.answer, o.err = m.front.dialGreeted(m.id)
	}
	select {
	case results <- o:
	case <-m.done:
		if o.err == nil {
			_ = o.conn.Close()
		}
	}
}

func (m *mount) opened(search *lanes.Search, o opened) {
	switch {
	case o.err != nil:
		search.Failed()
	case search.Opened(o.answer):
		m.add(o.conn)
	default:
		_ = o.conn.Close()
	}
}
