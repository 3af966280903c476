package readahead

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

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
