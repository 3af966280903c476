package supervise

import (
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"gnuthought.com/efs-stunnel/pkg/node/confdir"
)

const (
	scanInterval = 5 * time.Second // the time between two scans without a change notification
	// scanDelay coalesces a burst of changes into one scan.
	scanDelay = 20 * time.Millisecond
)

// watch reports changes of specifications. If the watch fails, the directory is only scanned at intervals.
func watch(dir confdir.Dir, log *slog.Logger) (changed <-chan struct{}, closeWatch func()) {
	changes := make(chan struct{}, 1)
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		if err = watcher.Add(filepath.Dir(dir.Prefix())); err != nil {
			_ = watcher.Close()
		}
	}
	if err != nil {
		log.Warn("watching the configuration directory failed; scanning it at intervals",
			"err", err, "duration", scanInterval)
		return changes, func() {}
	}
	go forward(watcher, dir, changes)
	return changes, func() {
		// The process ends next, and closes the descriptor in any case.
		_ = watcher.Close()
	}
}

// forward coalesces changes until the receiver takes one. An error, for example an overflow of the
// kernel's queue, counts as a change.
func forward(watcher *fsnotify.Watcher, dir confdir.Dir, changes chan<- struct{}) {
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
		select {
		case changes <- struct{}{}:
		default:
		}
	}
}
