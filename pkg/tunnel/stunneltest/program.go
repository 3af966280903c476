// Package stunneltest lets tests run the real stunnel against TLS servers of their own.
package stunneltest

import (
	"os"
	"os/exec"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// PathVariable names the stunnel that tests run, as it does the node agent's.
const PathVariable = "STUNNEL_PATH"

// Path finds the stunnel program. A test that needs it and does not get it fails.
func Path(t testing.TB) string {
	t.Helper()
	if path := os.Getenv(PathVariable); path != "" {
		if _, err := exec.LookPath(path); err != nil {
			t.Fatalf("%s names no program: %v", PathVariable, err)
		}
		return path
	}
	for _, name := range []string{wellknown.StunnelPath, wellknown.StunnelSystemPath, wellknown.StunnelCommand} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatalf("this test runs the real stunnel: install the package stunnel4, or set %s to the program, as make does", PathVariable)
	return ""
}
