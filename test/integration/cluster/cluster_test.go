//go:build integration

package cluster_test

import (
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"gnuthought.com/efs-stunnel/test/integration/cluster"
)

func TestStart(t *testing.T) {
	start := time.Now()
	c, err := cluster.Start(t.Context(), os.Getenv("KUBE_PROGRAMS"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("ready after %s", time.Since(start).Round(time.Millisecond))
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	if err := c.RestartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error("after a restart: ", err)
	}
}

func TestStartTellsWhatIsMissing(t *testing.T) {
	if _, err := cluster.Start(t.Context(), t.TempDir()); err == nil {
		t.Error("it started without programs")
	}
}
