package main

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The part readahead: how fast a node of the lab reads large files through a tunnel, by the read-ahead of its
// mount. readahead.pl reads in the kubelet's folder of a volume.

// readAheadLab is a volume with files and the setting of its mount.
type readAheadLab struct {
	*labVolume
	setting string // of the mount's read-ahead, on the node
}

// readAheadTotal is what all readers of a reading read together, in MiB, each to the end of its file. If they
// stopped before, what was read ahead for them would not count.
const readAheadTotal = 256

//go:embed readahead.pl
var readAheadProgram string

func (b *bench) measureReadAhead(ctx context.Context) error {
	b.logf("read-ahead (load %.1f): writing files", loadNow())
	return b.inLab(ctx, func(volume *labVolume) error {
		l := &readAheadLab{labVolume: volume}
		if err := l.findSetting(ctx); err != nil {
			return err
		}
		if err := l.writeFiles(ctx); err != nil {
			return err
		}
		return b.readAll(ctx, l)
	})
}

func (b *bench) readAll(ctx context.Context, l *readAheadLab) error {
	var roundTrip time.Duration
	for _, r := range plannedReadings() {
		if r.RoundTrip != roundTrip {
			if err := l.delay(ctx, r.RoundTrip/2); err != nil {
				return err
			}
			roundTrip = r.RoundTrip
		}
		if err := l.read(ctx, &r); err != nil {
			return fmt.Errorf("reading with %s: %w", r, err)
		}
		b.logf("  %s: %s MiB/s", r, number(r.Rate))
		b.results.ReadAhead = append(b.results.ReadAhead, r)
	}
	return nil
}

// findSetting finds the read-ahead of the volume's mount on the node.
func (l *readAheadLab) findSetting(ctx context.Context) error {
	output, err := l.run(ctx, "", l.onNode(fmt.Sprintf(`setting=/sys/class/bdi/$(mountpoint -d %s)/read_ahead_kb && echo "$setting $(cat "$setting")"`, l.folder))...)
	if err != nil {
		return err
	}
	var before int
	if _, err := fmt.Sscan(output, &l.setting, &before); err != nil {
		return fmt.Errorf("the read-ahead of %s is %q: want a setting and its value: %w", l.folder, output, err)
	}
	// Mounts of other pods have the same superblock, which keeps the setting.
	l.undo = append(l.undo, l.onNode(fmt.Sprintf("echo %d > %s", before, l.setting)))
	return nil
}

func (l *readAheadLab) writeFiles(ctx context.Context) error {
	for _, readers := range []int{1, mostReaders} {
		_, err := l.run(ctx, "", l.onNode(fmt.Sprintf("for file in %s; do dd if=/dev/zero of=$file bs=1M count=%d conv=fsync status=none || exit; done",
			strings.Join(l.files(readers), " "), readAheadTotal/readers))...)
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *readAheadLab) files(readers int) (files []string) {
	for i := range readers {
		files = append(files, fmt.Sprintf("%s/%d-of-%d", l.folder, i+1, readers))
	}
	return files
}

// read has a reading done. It is not interrupted: the node would go on with it, and change the read-ahead after
// it was restored.
func (l *readAheadLab) read(ctx context.Context, r *reading) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	command := []string{"exec", l.node, "--", "perl", "-", l.setting, strconv.Itoa(r.ReadAhead), strconv.Itoa(r.Block << 10)}
	output, err := l.run(context.WithoutCancel(ctx), readAheadProgram, append(command, l.files(r.Readers)...)...)
	if err != nil {
		return err
	}
	return r.parse(output)
}
