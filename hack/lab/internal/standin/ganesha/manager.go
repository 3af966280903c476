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
	"strconv"
	"strings"
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

	mu    sync.Mutex
	ports map[string]int // guarded by mu; exports that have a Ganesha
}

const stopGrace = 10 * time.Second

// Apply makes the running Ganeshas those of the exports: it adopts what still
// runs as wanted, and starts, restarts and stops the rest. It does not wait
// until they answer; Ready tells.
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

// Address is where an export's Ganesha listens; false when it has none.
func (m *Manager) Address(name string) (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	port, ok := m.ports[name]
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), ok
}

// Ready tells whether every Ganesha answers, and what the first one lacks.
func (m *Manager) Ready(ctx context.Context) error {
	m.mu.Lock()
	ports := maps.Clone(m.ports)
	m.mu.Unlock()
	for name := range ports {
		address, _ := m.Address(name)
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
		if port, err := readPort(f.port); err == nil && record.Matches(m.spec(e, f, port)) {
			m.setPort(e.Name, port)
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
			return fmt.Errorf("making its folders: %w", err)
		}
	}
	port, err := choosePort(ctx, f.port)
	if err != nil {
		return err
	}
	spec := m.spec(e, f, port)
	if err := os.WriteFile(f.config, []byte(spec.Digest), 0o600); err != nil {
		return fmt.Errorf("writing its configuration: %w", err)
	}
	record, err := m.Processes.Start(spec)
	if err != nil {
		return err
	}
	m.setPort(e.Name, port)
	m.Log.Info("started nfs-ganesha", "export", e.Name, "pid", record.PID, "port", port, "afterDeath", died)
	return nil
}

func (m *Manager) spec(e Export, f files, port int) proc.Spec {
	return proc.Spec{
		Name: process(e.Name),
		Args: m.Root.command(f),
		// Never the machine's own bus.
		Env:     []string{"DBUS_SYSTEM_BUS_ADDRESS=unix:path=" + filepath.Join(f.dir, "no-bus")},
		WorkDir: f.dir,
		LogFile: f.log,
		Address: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		Digest:  config(m.Root, e, f, port),
	}
}

func (m *Manager) setPort(name string, port int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ports == nil {
		m.ports = map[string]int{}
	}
	m.ports[name] = port
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
	delete(m.ports, name)
	m.mu.Unlock()
	if err := os.RemoveAll(filepath.Join(m.StateDir, name)); err != nil {
		return fmt.Errorf("forgetting export %s: %w", name, err)
	}
	m.Log.Info("stopped nfs-ganesha", "export", name)
	return nil
}

func readPort(file string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("reading port: %w", err)
	}
	port, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("reading port from %s: %w", file, err)
	}
	return port, nil
}

// choosePort takes a free port and writes it down, so that a restarted
// manager finds it. Only the lab's own programs could take it meanwhile.
func choosePort(ctx context.Context, file string) (int, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("looking for a free port: %w", err)
	}
	address, ok := listener.Addr().(*net.TCPAddr)
	if err := listener.Close(); err != nil || !ok {
		return 0, fmt.Errorf("looking for a free port: %w", err)
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(address.Port)+"\n"), 0o600); err != nil {
		return 0, fmt.Errorf("writing port: %w", err)
	}
	return address.Port, nil
}
