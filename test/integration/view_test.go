//go:build integration

package integration_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/node/agent"
	"gnuthought.com/efs-stunnel/pkg/node/confdir"
	"gnuthought.com/efs-stunnel/pkg/node/probe"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
	"gnuthought.com/efs-stunnel/pkg/node/sockets"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/program/httpserver"
)

// tableReader is a node agent without a supervisor.
type tableReader struct {
	*fixture
	dir      confdir.Dir
	registry *prometheus.Registry
}

// startAgent starts a node agent with its rights. It reads the table itself when its view is late by viewWait.
func (f *fixture) startAgent(viewWait time.Duration) *tableReader {
	f.Helper()
	folder, err := os.MkdirTemp("", "agent") // paths of sockets are short
	f.check(err)
	dir, err := confdir.Open(filepath.Join(folder, "s"))
	f.check(err)
	config := f.as(wellknown.NodeServiceAccount)
	client, err := kubernetes.NewForConfig(config)
	f.check(err)
	tables, err := metadata.NewForConfig(config)
	f.check(err)
	a := &tableReader{fixture: f, dir: dir, registry: prometheus.NewRegistry()}
	ctx, stop := context.WithCancel(context.WithoutCancel(f.Context()))
	log := slog.New(slog.DiscardHandler)
	ended := make(chan error, 1)
	o := agent.Options{
		Client: client, TableMetadata: tables, ViewWait: viewWait, Namespace: f.Namespace, Node: f.Named("a"), Dir: dir,
		Metadata: func(context.Context) (routing.Location, error) { return routing.Location{}, errors.New("not on EC2") },
		HasRoute: func(...netip.Addr) bool { return true }, Dialer: &probe.Network{}, ProbeInterval: time.Minute,
		Clients:   func() (sockets.ClientCounts, error) { return nil, nil },
		Listening: func() (sockets.Listeners, error) { return nil, nil },
		Status:    func() (tunnelspec.Status, error) { return tunnelspec.Status{}, fs.ErrNotExist },
		HTTP:      httpserver.Options{Address: "127.0.0.1:0", Metrics: a.registry, Log: log},
		Events:    record.NewFakeRecorder(1000), Metrics: a.registry, Log: log,
	}
	go func() { ended <- agent.New(o).Run(ctx) }()
	f.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			f.Errorf("the agent ended with an error: %v", err)
		}
		if err := os.RemoveAll(folder); err != nil {
			f.Error(err)
		}
	})
	return a
}

// follows waits until the agent has stored the table as it is.
func (a *tableReader) follows(what string) {
	a.Helper()
	a.Eventually("the agent has the table: "+what, func(ctx context.Context) error {
		table, err := a.Table(ctx)
		got, readErr := a.dir.Table().Read()
		if err := errors.Join(err, readErr); err != nil {
			return err
		}
		if string(got) != string(ports.Encode(table)) {
			return fmt.Errorf("it has %q", got)
		}
		return nil
	})
}

// reads returns how often the agent has read the whole table.
func (a *tableReader) reads() float64 {
	a.Helper()
	families, err := a.registry.Gather()
	a.check(err)
	for _, family := range families {
		if family.GetName() == "efs_stunnel_node_table_reads_total" {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	a.Fatal("there is no such metric")
	return 0
}

func (f *fixture) configMap(name string) *corev1.ConfigMap {
	f.Helper()
	object, err := f.Client.CoreV1().ConfigMaps(f.Namespace).Get(f.Context(), name, metav1.GetOptions{})
	f.check(err)
	return object
}

func (f *fixture) update(object *corev1.ConfigMap) {
	f.Helper()
	_, err := f.Client.CoreV1().ConfigMaps(f.Namespace).Update(f.Context(), object, metav1.UpdateOptions{})
	f.check(err)
}

// editTable changes the name of the file system in the table, as an administrator may.
func (f *fixture) editTable(name string) {
	f.Helper()
	table, err := f.Table(f.Context())
	f.check(err)
	target := table.Targets[f.fileSystem]
	target.Name = name
	table.Targets[f.fileSystem] = target
	object := f.configMap(wellknown.TargetsConfigMap)
	object.Data[wellknown.TargetsKey] = string(ports.Encode(table))
	f.update(object)
}

// waitForView waits until the view is that of the table.
func (f *fixture) waitForView() {
	f.Helper()
	f.Eventually("the view has the table", func(ctx context.Context) error {
		configMaps := f.Client.CoreV1().ConfigMaps(f.Namespace)
		table, err := configMaps.Get(ctx, wellknown.TargetsConfigMap, metav1.GetOptions{})
		view, viewErr := configMaps.Get(ctx, wellknown.ViewConfigMap, metav1.GetOptions{})
		if err := errors.Join(err, viewErr); err != nil {
			return err
		}
		text, err := ports.ReadView(view, table)
		if err == nil && text != table.Data[wellknown.TargetsKey] {
			err = errors.New("it has another text")
		}
		return err
	})
}

// newViewFixture has a manager with its rights. Those are the cluster's, so tests with them are not parallel.
func newViewFixture(t *testing.T) (*fixture, *manager) {
	t.Helper()
	f := newFixture(t)
	f.grant("../../deploy/kustomize/base/manager-rbac.yaml")
	f.grant("../../deploy/kustomize/base/agent-rbac.yaml")
	administrator := f.Config
	f.Config = f.as(wellknown.ManagerServiceAccount)
	m := f.startManager(nil)
	f.Config = administrator
	f.WaitForRootClaim(f.fileSystem)
	return f, m
}

// TestAgentsTakeTheTableFromItsView: they never read the table while a manager writes the view.
func TestAgentsTakeTheTableFromItsView(t *testing.T) {
	f, first := newViewFixture(t)
	f.waitForView()
	a := f.startAgent(time.Hour)
	a.follows("at first")
	f.WaitForRootClaim(f.NewFileSystem())
	a.follows("with one more")
	f.editTable("by-hand")
	a.follows("edited by hand")
	first.halt()
	f.editTable("while-no-manager-runs")
	f.startManager(nil)
	a.follows("edited while no manager ran")
	if reads := a.reads(); reads > 0 {
		t.Errorf("the agent has read the table %v times", reads)
	}
}

// TestAgentsReadTheTableWithoutItsView: without a manager, or with one of a version without views.
func TestAgentsReadTheTableWithoutItsView(t *testing.T) {
	f, m := newViewFixture(t)
	f.waitForView()
	a := f.startAgent(100 * time.Millisecond)
	a.follows("at first")
	m.halt()
	f.editTable("stale-view")
	a.follows("with the view of an earlier version")
	view := f.configMap(wellknown.ViewConfigMap)
	for key := range view.BinaryData {
		view.BinaryData[key] = []byte("garbage")
	}
	f.update(view)
	f.editTable("garbage-view")
	a.follows("with a view that is garbage")
	f.check(f.Client.CoreV1().ConfigMaps(f.Namespace).Delete(t.Context(), wellknown.ViewConfigMap, metav1.DeleteOptions{}))
	f.editTable("no-view")
	a.follows("without a view")
	another := f.startAgent(100 * time.Millisecond)
	another.follows("as an agent that starts without a view")
	if reads := a.reads(); reads < 3 {
		t.Errorf("the agent has read the table %v times", reads)
	}
	f.startManager(nil)
	f.waitForView()
}
