package agent_test

import (
	"fmt"
	"os"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/tunnel/sockets"
	"gnuthought.com/efs-stunnel/pkg/tunnel/supervise"
)

// launchVariable has this test program become stunnel.
const launchVariable = "AGENT_TEST_LAUNCH"

func TestMain(m *testing.M) {
	if os.Getenv(launchVariable) == "" {
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, supervise.Launch(os.Args[1], os.Args[3], supervise.DefaultMemoryLimit))
	os.Exit(1)
}

// clients cannot tell the agent's connections from others, as all are of one user here.
func clients() (sockets.Uses, error) { return sockets.Clients(-1) }
