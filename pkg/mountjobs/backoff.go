package mountjobs

import (
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// ClockGuard is how long after a replica first saw a Job, or first saw that it was over, it does not
// start the next one because of a time in an object. If clocks agree, that changes nothing: a deadline is
// longer, and so are most waits. If they do not, there is at most one mount Job a minute.
const ClockGuard = time.Minute

// Backoff returns the wait before the next try after a number of failures in a row: the first wait, then
// twice as long each time, up to sixteen times the first.
func Backoff(first time.Duration, failures int) time.Duration {
	if failures < 1 || first <= 0 {
		return 0
	}
	return first * time.Duration(min(1<<min(failures-1, 30), wellknown.MaxProvisionBackoffFactor))
}
