package mountjobs

import (
	"time"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// ClockGuard is how long after a replica first saw a Job, or first saw that it was over, no time in an
// object makes it start the next one. Where clocks agree, it makes no difference: a deadline is longer,
// and so are most waits. Where they do not, there is one mount Job a minute at most.
const ClockGuard = time.Minute

// Backoff is how long to wait after so many failures in a row before the next try: the first
// wait, then twice as long each time, up to sixteen times the first.
func Backoff(first time.Duration, failures int) time.Duration {
	if failures < 1 || first <= 0 {
		return 0
	}
	factor := 1
	for range failures - 1 {
		if factor *= 2; factor >= wellknown.MaxProvisionBackoffFactor {
			return first * wellknown.MaxProvisionBackoffFactor
		}
	}
	return first * time.Duration(factor)
}
