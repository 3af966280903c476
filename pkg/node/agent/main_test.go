package agent_test

import (
	"fmt"
	"os"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/node/sockets"
	"gnuthought.com/efs-stunnel/pkg/program/process"
)

// launchVariable is the environment variable that has this program execute stunnel.
const launchVariable = "AGENT_TEST_LAUNCH"

func TestMain(m *testing.M) {
	if os.Getenv(launchVariable) == "" {
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, process.Launch(os.Args[1], os.Args[2]))
	os.Exit(1)
}

// clients includes the agent's connections, because all belong to one user in tests.
func clients() (sockets.ClientCounts, error) { return new(sockets.Lister).Clients(-1) }
