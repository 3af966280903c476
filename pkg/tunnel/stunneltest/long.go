package stunneltest

import (
	"os"
	"testing"
)

// LongVariable has tests that take minutes run, and others repeat more: make unit-long sets it.
const LongVariable = "EFS_STUNNEL_LONG"

// IsLong says whether it is set.
func IsLong() bool { return os.Getenv(LongVariable) != "" }

// Long skips a test unless it is.
func Long(t testing.TB) {
	t.Helper()
	if !IsLong() {
		t.Skipf("takes minutes: set %s=1", LongVariable)
	}
}
