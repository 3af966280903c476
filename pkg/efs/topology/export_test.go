package topology

import "time"

// WithLongTimeout is for tests in which the service answers, on a busy machine.
func (m Metadata) WithLongTimeout() Metadata {
	m.timeout = time.Minute
	return m
}
