//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/controller/loops"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// poll starts a manager that polls often, and sees everything.
func (d *drill) poll() *manager {
	d.Helper()
	return startManager(d.World, nil, func(o *loops.Options) { o.PollingInterval, o.SweepDelay = 200*time.Millisecond, time.Second })
}

// awaitPolls waits for more polls to begin and for the first of them to be over.
func (d *drill) awaitPolls(count int) {
	d.Helper()
	before := d.EFS.Calls().List
	d.Eventually("the manager polls", func(context.Context) error {
		if polls := d.EFS.Calls().List - before; polls < count {
			return fmt.Errorf("%d times", polls)
		}
		return nil
	})
}

// awaitTable waits until a table lacks nothing.
func (d *drill) awaitTable(what string, lacks func(ports.Table) string) ports.Table {
	d.Helper()
	var table ports.Table
	d.Eventually("the table has "+what, func(ctx context.Context) (err error) {
		if table, err = d.tableNow(ctx); err != nil {
			return err
		}
		if missing := lacks(table); missing != "" {
			return fmt.Errorf("%s", missing)
		}
		return nil
	})
	return table
}

func (d *drill) tableNow(ctx context.Context) (ports.Table, error) {
	object, err := d.Client.CoreV1().ConfigMaps(d.Namespace).Get(ctx, wellknown.TargetsConfigMap, metav1.GetOptions{})
	if err != nil {
		return ports.Table{}, err
	}
	return ports.Decode([]byte(object.Data[wellknown.TargetsKey]))
}

func portsOf(table ports.Table) map[string]int {
	assigned := map[string]int{}
	for id, target := range table.Targets {
		assigned[id] = target.Port
	}
	return assigned
}

// configMap has the table.
func (d *drill) configMap() *corev1.ConfigMap {
	d.Helper()
	object, err := d.Client.CoreV1().ConfigMaps(d.Namespace).Get(d.Context(), wellknown.TargetsConfigMap, metav1.GetOptions{})
	d.check(err)
	return object
}

// TestDiscoveryOnDemand polls for claims that name an unknown file system, and not for each.
func TestDiscoveryOnDemand(t *testing.T) {
	t.Parallel()
	d := newDrill(t)
	began := time.Now()
	d.start(nil, func(o *loops.Options) { o.PollingInterval = time.Hour })
	coming := fmt.Sprintf("fs-%dx2", d.Number)
	claims := d.crowd(20, func(int) string { return coming })
	d.awaitEvent(claims[19], wellknown.EventProvisioningFailed, "waiting: ", coming)
	if id := d.NewFileSystem(); id != coming {
		t.Fatalf("the new file system is %s", id)
	}
	late := d.claimOn(coming, "late") // the others' poll may have come before the file system
	d.awaitBound(append(claims, late)...)
	if polls, most := d.EFS.Calls().List, 2+int(time.Since(began)/(10*time.Second)); polls < 2 || polls > most {
		t.Errorf("%d polls, want at most %d", polls, most)
	}
}
