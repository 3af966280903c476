// Package readahead raises the read-ahead of a node's mounts of tunnels. Since Linux 5.4 the kernel reads
// 128 KiB ahead on NFS, however far away the server is, so that a sequential read waits for most of its
// requests; efs-utils sets 15 MiB.
package readahead

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/program/logging"
	"gnuthought.com/efs-stunnel/pkg/program/loop"
)

// KernelDefault is what the kernel gives an NFS mount, in KiB. A mount with another value has it from
// somebody: from a rule of the node, such as nfsrahead's, from an administrator, or from us.
const KernelDefault = 128

// Options say where things are, and what to set.
type Options struct {
	KiB   int    // read-ahead of our mounts
	Table string // file with the table of ports
	// Mounts is the kernel's list of NFS mounts in the host's network, as in /proc/net/nfsfs/volumes.
	Mounts string
	// Devices is the folder with the kernel's settings of each backing device, as in
	// /sys/devices/virtual/bdi.
	Devices string
	// Interval is the time between two looks at the mounts, of which the kernel reports no change.
	Interval time.Duration
	Log      *slog.Logger
}

// Run sets the read-ahead of our mounts, and of those that are made later, until the context ends.
func Run(ctx context.Context, o Options) {
	s := setter{Options: o}
	for ctx.Err() == nil {
		s.report(s.setAll())
		loop.Pause(ctx, o.Interval)
	}
}

type setter struct {
	Options
	text     []byte         // latest content of the table's file
	tableErr error          // of decoding that
	ports    map[int]bool   // of the latest table that could be read
	last     loop.LastError // of the latest look
}

// report logs an error when it begins, changes or ends, and not at every look.
func (s *setter) report(err error) {
	switch isNew, ended := s.last.Update(err); {
	case isNew:
		s.Log.Warn("read-ahead not set", "err", err)
	case ended:
		s.Log.Info("read-ahead can be set again")
	}
}

// setAll looks at every mount once. One that fails does not keep others from being set.
func (s *setter) setAll() error {
	file, err := os.Open(s.Mounts)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the kernel's NFS client is not loaded: nothing was mounted yet
	}
	if err != nil {
		return err
	}
	defer file.Close()
	mounts, err := readMounts(file)
	if err != nil {
		return fmt.Errorf("reading %s: %w", s.Mounts, err)
	}
	errs := []error{s.readTable()}
	for _, m := range mounts {
		if s.isOurs(m.server) {
			errs = append(errs, s.set(m))
		}
	}
	return logging.Errors(errs...)
}

// readTable keeps the ports of the latest table if the file cannot be read: a mount stays ours.
func (s *setter) readTable() error {
	text, err := os.ReadFile(s.Table)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the manager has not written it yet
	}
	if err != nil {
		return err
	}
	if s.text == nil || !bytes.Equal(text, s.text) {
		s.text, s.tableErr = text, s.decodeTable(text)
	}
	return s.tableErr
}

func (s *setter) decodeTable(text []byte) error {
	if strings.HasSuffix(s.Table, ".gz") {
		plain, err := ports.Decompress(text)
		if err != nil {
			return fmt.Errorf("decompressing %s: %w", s.Table, err)
		}
		text = plain
	}
	table, _, err := ports.DecodeLenient(text) // with an error, the valid targets
	found := map[int]bool{}
	for _, target := range table.Targets {
		found[target.Port] = true
		for _, accessPoint := range target.AccessPoints {
			found[accessPoint.Port] = true
		}
	}
	if len(found) > 0 || err == nil {
		s.ports = found
	}
	if err != nil {
		return fmt.Errorf("reading the table %s: %w", s.Table, err)
	}
	return nil
}

func (s *setter) isOurs(server netip.AddrPort) bool {
	return server.Addr().String() == wellknown.LoopbackAddress && s.ports[int(server.Port())]
}

// set changes the kernel's default only.
func (s *setter) set(m mount) error {
	path := filepath.Join(s.Devices, m.device, "read_ahead_kb")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // unmounted since the list was read
	}
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(text)) != strconv.Itoa(KernelDefault) {
		return nil
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(strconv.Itoa(s.KiB))
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	s.Log.Info("read-ahead set", "address", m.server.String(), "device", m.device, "kib", s.KiB)
	return nil
}

// mount is an NFS mount of the node, or several with one superblock.
type mount struct {
	server netip.AddrPort
	device string // its backing device, as in 0:45
}

// device is a device number. It becomes part of a path.
var device = regexp.MustCompile(`^[0-9]+:[0-9]+$`)

// readMounts reads the kernel's list of NFS superblocks, /proc/net/nfsfs/volumes:
//
//	NV SERVER   PORT DEV          FSID                              FSC
//	v4 7f000001 500a 0:45         9a6f2c1d0e3b4a58:0                no
//
// Address and port are in hexadecimal. Its format is that of nfs_volume_list_show in fs/nfs/client.c.
func readMounts(r io.Reader) ([]mount, error) {
	var mounts []mount
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if n == 1 || len(fields) == 0 {
			continue
		}
		m, err := parseMount(fields)
		if err != nil {
			return nil, fmt.Errorf("line %d: %q: %w", n, lines.Text(), err)
		}
		mounts = append(mounts, m)
	}
	return mounts, lines.Err()
}

func parseMount(fields []string) (mount, error) {
	if len(fields) < 4 {
		return mount{}, fmt.Errorf("%d columns, want at least 4", len(fields))
	}
	octets, err := hex.DecodeString(fields[1])
	if err != nil {
		return mount{}, fmt.Errorf("the server's address: %w", err)
	}
	address, ok := netip.AddrFromSlice(octets)
	if !ok {
		return mount{}, fmt.Errorf("the server's address has %d bytes, want 4 or 16", len(octets))
	}
	port, err := strconv.ParseUint(fields[2], 16, 16)
	if err != nil {
		return mount{}, fmt.Errorf("the server's port: %w", err)
	}
	if !device.MatchString(fields[3]) {
		return mount{}, fmt.Errorf("the device is %q, want two numbers with a colon", fields[3])
	}
	return mount{netip.AddrPortFrom(address.Unmap(), uint16(port)), fields[3]}, nil
}
