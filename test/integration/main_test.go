//go:build integration

// Package integration runs the control loops on a real apiserver, with the cluster's own controllers
// beside them and simulated nodes. `make integration` builds what it needs.
package integration_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"gnuthought.com/efs-stunnel/test/integration/cluster"
	"gnuthought.com/efs-stunnel/test/integration/testenv"
)

// shared is the cluster of all tests; it is set by TestMain.
var shared *cluster.Cluster

func TestMain(m *testing.M) {
	if err := run(m); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(m *testing.M) (err error) {
	programs, err := cluster.Programs()
	if err != nil {
		return err
	}
	if os.Getuid() != 0 {
		return errors.New("mountjob changes the owners of directories: run these tests as root")
	}
	if shared, err = cluster.Start(context.Background(), programs, cluster.Fast); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shared.Stop()) }()
	if code := m.Run(); code != 0 {
		return fmt.Errorf("exit code %d", code)
	}
	return nil
}

func newEnv(t testing.TB) *testenv.Env {
	t.Helper()
	return testenv.New(t, shared)
}
