package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cenkalti/backoff/v4"
	"golang.org/x/sys/unix"
)

// Stop ends the process of a name with SIGTERM, after the grace period with SIGKILL, and removes its
// record. A process that has ended already is no error.
func (d Dir) Stop(ctx context.Context, name string, grace time.Duration) error {
	r, ok := d.Get(name)
	if !ok {
		return nil
	}
	if err := r.stop(ctx, grace); err != nil {
		return fmt.Errorf("stopping %s: %w", name, err)
	}
	if err := os.Remove(d.file(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("stopping %s: %w", name, err)
	}
	return nil
}

func (r Record) stop(ctx context.Context, grace time.Duration) error {
	if !r.Alive() {
		return nil
	}
	// Unlike the pid, the descriptor never stands for another process.
	fd, err := unix.PidfdOpen(r.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening pid %d: %w", r.PID, err)
	}
	defer unix.Close(fd)
	if !r.Alive() {
		return nil // ended before PidfdOpen, and fd may be another process
	}
	if err := signal(fd, unix.SIGTERM); err != nil {
		return err
	}
	if r.waitGone(ctx, grace) {
		return nil
	}
	if err := signal(fd, unix.SIGKILL); err != nil {
		return err
	}
	if !r.waitGone(ctx, killGrace) {
		return fmt.Errorf("pid %d survives SIGKILL", r.PID)
	}
	return nil
}

const (
	killGrace    = 30 * time.Second
	pollInterval = 20 * time.Millisecond
)

func signal(pidfd int, sig unix.Signal) error {
	err := unix.PidfdSendSignal(pidfd, sig, nil, 0)
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("sending %v: %w", sig, err)
	}
	return nil
}

func (r Record) waitGone(ctx context.Context, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := backoff.Retry(func() error {
		if r.Alive() {
			return errors.New("alive")
		}
		return nil
	}, backoff.WithContext(backoff.NewConstantBackOff(pollInterval), ctx))
	return err == nil
}
