package supervise

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"gnuthought.com/efs-stunnel/pkg/tunnel/confdir"
)

const (
	// scanInterval is how often the folder is read although nothing was said of it.
	scanInterval = 5 * time.Second
	// scanDelay gathers a burst of changes into one.
	scanDelay = 20 * time.Millisecond
)

// watch says when a tunnel's file has changed. A folder that cannot be watched is read at
// intervals only.
func watch(dir confdir.Dir, log *slog.Logger) (changed <-chan struct{}, closeWatch func()) {
	changes := make(chan struct{}, 1)
	watcher, err := newWatcher(filepath.Dir(dir.Prefix()))
	if err != nil {
		log.Warn("configuration folder cannot be watched; reading it at intervals",
			"err", err, "duration", scanInterval)
		return changes, func() {}
	}
	go forward(watcher, dir, changes)
	return changes, func() {
		// The error would be of a descriptor that ends with the program.
		_ = watcher.Close()
	}
}

func newWatcher(dir string) (*fsnotify.Watcher, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", dir, err)
	}
	if err := watcher.Add(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("watching %s: %w", dir, err), watcher.Close())
	}
	return watcher, nil
}

// forward makes one change of any number that nobody has looked at. Too many for the kernel are
// a change as well.
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
