package supervise

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"github.com/fsnotify/fsnotify"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/node/confdir"
	"gnuthought.com/efs-stunnel/pkg/program/loop"
)

const (
	scanInterval = 5 * time.Second // the time between two scans without a change notification
	// scanDelay coalesces a burst of changes into one scan.
	scanDelay = 20 * time.Millisecond
)

// watch reports changes of specifications until the context ends. If the watch fails, the directory is only
// scanned at intervals.
func watch(ctx context.Context, dir confdir.Dir, log *slog.Logger) (changed <-chan struct{}) {
	changes := loop.NewWake()
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		if err = watcher.Add(filepath.Dir(dir.Prefix())); err != nil {
			_ = watcher.Close()
		}
	}
	if err != nil {
		log.Warn("watching the configuration directory failed; scanning it at intervals",
			"err", err, "duration", scanInterval)
		return changes
	}
	go forward(watcher, dir, changes)
	context.AfterFunc(ctx, func() { _ = watcher.Close() }) // the process ends next, and closes the descriptor in any case
	return changes
}

// forward coalesces changes until the receiver takes one. An error, for example an overflow of the
// kernel's queue, counts as a change.
func forward(watcher *fsnotify.Watcher, dir confdir.Dir, changes loop.Wake) {
	for {
		select {
		case event, ok := <-watcher.Events:
			if !ok {
				return
			}
			if dir.TunnelOf(event.Name) == "" || event.Op == fsnotify.Chmod {
				continue
			}
		case _, ok := <-watcher.Errors:
			if !ok {
				return
			}
		}
		changes.Request()
	}
}

// reportDelay is the shortest time between two writes of the status file.
const reportDelay = 100 * time.Millisecond

// ReadStatus reads the status file of a directory. The error is fs.ErrNotExist while no supervisor runs.
func ReadStatus(dir confdir.Dir) (tunnelspec.Status, error) {
	var status tunnelspec.Status
	text, err := dir.Status().Read()
	switch {
	case err == nil && text == nil:
		err = fs.ErrNotExist
	case err == nil:
		err = json.Unmarshal(text, &status)
	}
	if err != nil {
		return tunnelspec.Status{}, fmt.Errorf("reading the supervisor's status: %w", err)
	}
	return status, nil
}

// report writes the status file if the status has changed or UpdatedAt is due. It returns when to
// call it again.
func (s *supervisor) report(now time.Time) time.Time {
	if next := s.statusAt.Add(reportDelay); now.Before(next) {
		return next
	}
	fresh := tunnelspec.Status{
		PID: os.Getpid(), StartedAt: s.startedAt, UpdatedAt: s.status.UpdatedAt,
		Stunnel: s.features.Version, MemoryLimit: s.options.MemoryLimit, Tunnels: s.tunnelStatus(),
	}
	due := s.status.UpdatedAt.Add(tunnelspec.StatusInterval - time.Second)
	if now.Before(due) && reflect.DeepEqual(fresh, s.status) {
		return due
	}
	// Read after the comparison: a change of memory alone is no reason to write the file.
	s.checkMemory(now)
	fresh.Tunnels = s.tunnelStatus()
	s.statusAt, fresh.UpdatedAt = now, now
	text, err := json.Marshal(fresh)
	if err == nil {
		err = s.dir.Status().Write(text)
	}
	if err != nil {
		s.options.Log.Warn("writing the status file failed", "err", err)
		return now.Add(time.Second)
	}
	s.status = fresh
	return now.Add(tunnelspec.StatusInterval - time.Second)
}

func (s *supervisor) tunnelStatus() map[string]tunnelspec.TunnelStatus {
	all := make(map[string]tunnelspec.TunnelStatus, len(s.tunnels))
	for name, t := range s.tunnels {
		all[name] = t.status()
	}
	return all
}

func (t *tunnel) status() tunnelspec.TunnelStatus {
	status := t.reported
	status.State, status.Listening = t.state(), t.desired.isSet() && t.listening()
	status.Servers, status.Problems = t.servers(), maps.Clone(status.Problems)
	if t.socket != nil {
		status.Accept = t.socket.address
	}
	switch {
	case status.State == tunnelspec.StateIdle:
		status.Generation = t.desired.generation
	case t.proc != nil && t.phase != phaseStarting:
		status.Generation = t.current.generation
	}
	return status
}

func (t *tunnel) state() tunnelspec.State {
	switch p := t.reported.Process; {
	case t.phase == phaseRunning, t.phase == phaseReloading:
		return tunnelspec.StateRunning
	case t.phase == phaseStopping:
		return tunnelspec.StateStopping
	case t.phase == phaseNone && !t.needed && t.desired.isSet() && t.listening():
		return tunnelspec.StateIdle
	case p != nil && p.Reason != tunnelspec.ReasonDied:
		return tunnelspec.StateFailed
	}
	return tunnelspec.StateWaiting
}
