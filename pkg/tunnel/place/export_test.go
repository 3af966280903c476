package place

import "time"

// Patiently is for tests on a busy machine, whose service answers.
func (m Metadata) Patiently() Metadata {
	m.timeout = time.Minute
	return m
}
