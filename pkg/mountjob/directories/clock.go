package directories

import (
	"context"
	"fmt"
	"time"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// serverClock is the clock of the file server. It alone decides what was kept long enough in the
// trash: the clocks of the nodes and of the manager may be wrong, and several clusters may share a
// file system.
type serverClock struct {
	fs    *FileSystem
	said  time.Time // zero until the server was asked
	asked time.Time // when that was, by this process's monotonic clock
}

// now asks the server once, and counts on from there.
func (c *serverClock) now(ctx context.Context) (time.Time, error) {
	if c.fs.serverTime != nil {
		return c.fs.serverTime(), nil
	}
	if c.said.IsZero() {
		said, err := c.fs.askTime(ctx)
		if err != nil {
			return time.Time{}, err
		}
		c.said, c.asked = said, time.Now()
	}
	return c.said.Add(time.Since(c.asked)).UTC(), nil
}

// askTime sets the times of the state directory to now, and reads them back. That needs no space on
// the server. The request carries no time (NFSv4: SET_TO_SERVER_TIME4), so the server takes its own.
func (f *FileSystem) askTime(ctx context.Context) (time.Time, error) {
	if err := f.before(ctx, "ask the server for its time"); err != nil {
		return time.Time{}, err
	}
	state, err := f.state.Open(".")
	if err != nil {
		return time.Time{}, fmt.Errorf("asking the file server for its time: %w", err)
	}
	defer state.Close()
	if err := touch(state); err != nil {
		return time.Time{}, fmt.Errorf("asking the file server for its time, as that of %s: %w", wellknown.StateDirectory, err)
	}
	info, err := state.Stat()
	if err != nil {
		return time.Time{}, fmt.Errorf("asking the file server for its time: %w", err)
	}
	return info.ModTime(), nil
}
