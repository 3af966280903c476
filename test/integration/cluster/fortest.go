package cluster

import (
	"fmt"
	"os"
	"testing"
)

// ProgramsEnv names the folder with etcd, kube-apiserver and kube-controller-manager.
const ProgramsEnv = "KUBE_PROGRAMS"

// Programs returns that folder.
func Programs() (string, error) {
	folder := os.Getenv(ProgramsEnv)
	if folder == "" {
		return "", fmt.Errorf("%s is not set: want the folder that `bin/lab components` prints, as make integration does", ProgramsEnv)
	}
	return folder, nil
}

// ForTest starts a control plane that ends with the test.
func ForTest(t testing.TB) *Cluster {
	t.Helper()
	programs, err := Programs()
	if err != nil {
		t.Fatal(err)
	}
	c, err := Start(t.Context(), programs, Fast)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}
