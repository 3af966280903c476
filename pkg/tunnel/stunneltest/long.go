package stunneltest

import (
	"os"
	"testing"
)

// LongVariable enables tests that take minutes, and more repetitions in others. make unit-long sets
// it.
const LongVariable = "EFS_STUNNEL_LONG"

// IsLong reports whether LongVariable is set.
func IsLong() bool { return os.Getenv(LongVariable) != "" }

// SkipUnlessLong skips a test unless LongVariable is set.
func SkipUnlessLong(t testing.TB) {
	t.Helper()
	if !IsLong() {
		t.Skipf("takes minutes: set %s=1", LongVariable)
	}
}
