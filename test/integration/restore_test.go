//go:build integration

package integration_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"gnuthought.com/efs-stunnel/pkg/controller/caches"
	"gnuthought.com/efs-stunnel/pkg/election"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
	"gnuthought.com/efs-stunnel/test/integration/cluster"
)

// TestRestoredEtcdIsNoticed: many claims are deleted, and then etcd is restored from the backup of before, under a
// replica that leads. Its caches have no claim any more, and must not count as current while the apiserver has
// them; and it ends.
func TestRestoredEtcdIsNoticed(t *testing.T) {
	t.Parallel()
	const count = 40
	own, err := cluster.Start(t.Context(), os.Getenv(programsEnv), cluster.Fast)
	check(t, err)
	t.Cleanup(func() { check(t, own.Stop()) })
	client, err := kubernetes.NewForConfig(own.Config())
	check(t, err)
	claims := client.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault)
	create := func(name string) error {
		_, err := claims.Create(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources:   corev1.VolumeResourceRequirements{Requests: oneGibibyte()},
		}}, metav1.CreateOptions{})
		return err
	}
	for n := range count {
		check(t, create(fmt.Sprint("claim-", n)))
	}
	led, c := leadAndWatch(t, own, client)
	backup, err := own.Backup(t.Context())
	check(t, err)
	for n := range count {
		check(t, claims.Delete(t.Context(), fmt.Sprint("claim-", n), metav1.DeleteOptions{}))
	}
	check(t, wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return caches.Count(c.Claims) == 0, nil
	}))
	check(t, own.Restore(t.Context(), backup))
	for n := range 20 { // each is an event for a cache that is current
		check(t, create(fmt.Sprint("new-", n)))
		if c.IsCurrent(t.Context(), c.Claims) && caches.Count(c.Claims) < count {
			t.Fatalf("a cache with %d claims is current, and the apiserver has %d", caches.Count(c.Claims), count+n+1)
		}
	}
	select {
	case err := <-led:
		if !errors.Is(err, election.ErrRestored) && !errors.Is(err, election.ErrLost) {
			t.Errorf("the leader ends with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the leader goes on")
	}
}

// leadAndWatch runs caches and an election, until the test ends, and returns when they work.
func leadAndWatch(t *testing.T, own *cluster.Cluster, client kubernetes.Interface) (led <-chan error, c *caches.Caches) {
	t.Helper()
	lists, err := metadata.NewForConfig(own.Config())
	check(t, err)
	c, err = caches.New(client, lists, wellknown.Namespace)
	check(t, err)
	e, err := election.New(election.Options{
		Requests: client, Watches: client, Namespace: metav1.NamespaceDefault, Name: "lease", Identity: "replica",
		LeaseDuration: 90 * time.Second, RenewDeadline: time.Minute, RetryPeriod: time.Second, Log: slog.New(slog.DiscardHandler),
	})
	check(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	t.Cleanup(stop)
	running.Go(func() { c.Run(ctx) })
	ended, leads := make(chan error, 1), make(chan struct{})
	running.Go(func() {
		ended <- e.Run(ctx, func(ctx context.Context) error {
			close(leads)
			<-ctx.Done()
			return nil
		})
	})
	check(t, c.Await(ctx))
	<-leads
	return ended, c
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
