package front

import "math"

// LowerBusyRate has mounts of pinned servers get lanes at a rate in bytes per second that any machine reaches.
func (f *Front) LowerBusyRate(rate int64) { f.busyRate.Store(rate) }

// KeepLanes has no mount get more lanes.
func (f *Front) KeepLanes() { f.restUntil.Store(math.MaxInt64) }
