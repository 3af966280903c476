// Package stunneltest has what tests with the real stunnel need: the program, TLS servers,
// certificates and free ports.
package stunneltest

import (
	"os"
	"os/exec"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// pathVariable is the environment variable with the path of stunnel, as for the node agent.
const pathVariable = "STUNNEL_PATH"

// Path returns the path of the stunnel program. It fails the test if there is none.
func Path(t testing.TB) string {
	t.Helper()
	if path := os.Getenv(pathVariable); path != "" {
		if _, err := exec.LookPath(path); err != nil {
			t.Fatalf("%s is not the path of a program: %v", pathVariable, err)
		}
		return path
	}
	for _, name := range []string{wellknown.StunnelPath, wellknown.StunnelSystemPath, wellknown.StunnelCommand} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatalf("this test runs the real stunnel: install the package stunnel4, or set %s to the program, as make does", pathVariable)
	return ""
}

// longVariable enables tests that take minutes, and more repetitions in others. make unit-long sets it.
const longVariable = "EFS_STUNNEL_LONG"

// IsLong reports whether longVariable is set.
func IsLong() bool { return os.Getenv(longVariable) != "" }

// SkipUnlessLong skips a test unless longVariable is set.
func SkipUnlessLong(t testing.TB) {
	t.Helper()
	if !IsLong() {
		t.Skipf("takes minutes: set %s=1", longVariable)
	}
}
