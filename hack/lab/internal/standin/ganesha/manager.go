package ganesha

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"gnuthought.com/efs-stunnel/hack/lab/internal/proc"
)

// Processes starts, finds and stops detached processes.
type Processes interface {
	Start(spec proc.Spec, files ...*os.File) (proc.Record, error)
	Stop(ctx context.Context, name string, grace time.Duration) error
	Get(name string) (proc.Record, bool)
}

// Manager keeps a Ganesha running for each export, across its own restarts.
type Manager struct {
	Root      Root
	StateDir  string // one folder for each export
	LogDir    string
	Processes Processes
	Log       *slog.Logger

	mu        sync.Mutex
	addresses map[string]string // guarded by mu; by export
}

const stopGrace = 10 * time.Second

// Apply runs one Ganesha for each export: it adopts those that run with the wanted configuration, and
// starts, restarts and stops the others. It does not wait until they answer, see Ready.
func (m *Manager) Apply(ctx context.Context, exports []Export) error {
	wanted := map[string]bool{}
	var failures []error
	for _, e := range exports {
		wanted[e.Name] = true
		if err := m.ensure(ctx, e); err != nil {
			failures = append(failures, fmt.Errorf("serving %s: %w", e.Name, err))
		}
	}
	known, err := m.known()
	failures = append(failures, err)
	for _, name := range known {
		if !wanted[name] {
			failures = append(failures, m.remove(ctx, name))
		}
	}
	return errors.Join(failures...)
}

// Address returns the address of an export's Ganesha; false when it has none.
func (m *Manager) Address(name string) (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	address, ok := m.addresses[name]
	return address, ok
}

// Ready returns nil when every Ganesha answers, and an error of the first one that does not.
func (m *Manager) Ready(ctx context.Context) error {
	m.mu.Lock()
	addresses := maps.Clone(m.addresses)
	m.mu.Unlock()
	for name, address := range addresses {
		if err := pingAddress(ctx, address); err != nil {
			return fmt.Errorf("nfs-ganesha of %s is not ready: %w", name, err)
		}
	}
	return nil
}

func (m *Manager) ensure(ctx context.Context, e Export) error {
	f := filesOf(m.StateDir, m.LogDir, e.Name)
	record, ok := m.Processes.Get(process(e.Name))
	alive := ok && record.Alive()
	if alive {
		if record.Matches(m.spec(e, f, record.Address)) {
			m.setAddress(e.Name, record.Address)
			return nil
		}
		if err := m.Processes.Stop(ctx, record.Name, stopGrace); err != nil {
			return err
		}
	}
	return m.start(ctx, e, f, ok && !alive)
}

func (m *Manager) start(ctx context.Context, e Export, f files, died bool) error {
	for _, dir := range []string{f.recovery, f.tickets} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("making folders: %w", err)
		}
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	spec := m.spec(e, f, address)
	if err := os.WriteFile(f.config, []byte(spec.Digest), 0o600); err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	record, err := m.Processes.Start(spec)
	if err != nil {
		return err
	}
	m.setAddress(e.Name, address)
	m.Log.Info("nfs-ganesha started", "export", e.Name, "pid", record.PID, "address", address, "restart", died)
	return nil
}

func (m *Manager) spec(e Export, f files, address string) proc.Spec {
	return proc.Spec{
		Name: process(e.Name),
		Args: m.Root.command(f),
		// Ganesha must not use this machine's bus.
		Env:     []string{"DBUS_SYSTEM_BUS_ADDRESS=unix:path=" + filepath.Join(f.dir, "no-bus")},
		WorkDir: f.dir,
		LogFile: f.log,
		Address: address,
		Digest:  config(m.Root, e, f, address),
	}
}

func (m *Manager) setAddress(name, address string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.addresses == nil {
		m.addresses = map[string]string{}
	}
	m.addresses[name] = address
}

// known lists the exports that have or had a Ganesha: those with a folder.
func (m *Manager) known() ([]string, error) {
	entries, err := os.ReadDir(m.StateDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing exports: %w", err)
	}
	var names []string
	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

func (m *Manager) remove(ctx context.Context, name string) error {
	if err := m.Processes.Stop(ctx, process(name), stopGrace); err != nil {
		return err
	}
	m.mu.Lock()
	delete(m.addresses, name)
	m.mu.Unlock()
	if err := os.RemoveAll(filepath.Join(m.StateDir, name)); err != nil {
		return fmt.Errorf("removing export %s: %w", name, err)
	}
	m.Log.Info("nfs-ganesha stopped", "export", name)
	return nil
}

// freeAddress chooses a port that was free just now. Only the lab's own programs could take it before
// Ganesha does.
func freeAddress(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("finding a free port: %w", err)
	}
	return listener.Addr().String(), listener.Close()
}
