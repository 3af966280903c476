// Package stunneltest has what tests with the real stunnel need: the program, TLS servers,
// certificates and free ports.
package stunneltest

import (
	"os"
	"os/exec"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// PathVariable is the environment variable with the path of stunnel, as for the node agent.
const PathVariable = "STUNNEL_PATH"

// Path returns the path of the stunnel program. It fails the test if there is none.
func Path(t testing.TB) string {
	t.Helper()
	if path := os.Getenv(PathVariable); path != "" {
		if _, err := exec.LookPath(path); err != nil {
			t.Fatalf("%s is not the path of a program: %v", PathVariable, err)
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
