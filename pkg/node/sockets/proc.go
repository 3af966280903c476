package sockets

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// procFiles list the sockets of this thread's network namespace (proc_pid_net(5)). That of IPv6 is absent
// where the kernel has no IPv6. Its sockets can have IPv4 addresses, too.
var procFiles = [...]string{"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"}

// dumpProc is dump by the text that the kernel has for all sockets, which costs more with many of them.
func dumpProc(states uint32, condition uint8, report func(socket)) error {
	return readProc(func(s socket) {
		address := s.ID.LocalAddress
		if condition == conditionRemote {
			address = s.ID.RemoteAddress
		}
		if states&(1<<s.State) != 0 && address[0] == 127 {
			report(s)
		}
	})
}

// lookupProc is lookup by that text.
func lookupProc(local, remote netip.AddrPort, report func(socket)) error {
	var found socket
	any4 := netip.AddrPortFrom(netip.IPv4Unspecified(), local.Port())
	err := readProc(func(s socket) {
		at := s.ID.local()
		switch {
		case at == local && s.ID.remote() == remote,
			s.State == unix.BPF_TCP_LISTEN && (at == local || at == any4) && found.State == 0:
			found = s
		}
	})
	switch {
	case err != nil:
		return err
	case found.State == 0:
		return unix.ENOENT
	}
	report(found)
	return nil
}

// readProc calls report for each TCP socket with IPv4 addresses.
func readProc(report func(socket)) error {
	for i, name := range procFiles {
		err := readProcFile(name, report)
		if err != nil && (i == 0 || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	return nil
}

func readProcFile(name string, report func(socket)) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan(); lines.Scan(); { // the first line has the titles
		s, isIPv4, err := parseProc(lines.Bytes())
		if err != nil {
			return fmt.Errorf("line %.200q of %s: %w", lines.Text(), name, err)
		}
		if isIPv4 {
			report(s)
		}
	}
	return lines.Err()
}

// parseProc parses a line of a file of procFiles:
//
//	sl  local_address rem_address   st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode …
func parseProc(line []byte) (s socket, isIPv4 bool, err error) {
	fields := bytes.Fields(line)
	if len(fields) < 10 {
		return s, false, fmt.Errorf("%d fields", len(fields))
	}
	local, localIs4, localErr := parseProcAddress(fields[1], &s.ID.LocalPort)
	remote, remoteIs4, remoteErr := parseProcAddress(fields[2], &s.ID.RemotePort)
	state, stateErr := strconv.ParseUint(string(fields[3]), 16, 5)
	uid, uidErr := strconv.ParseUint(string(fields[7]), 10, 32)
	inode, inodeErr := strconv.ParseUint(string(fields[9]), 10, 64)
	copy(s.ID.LocalAddress[:], local[:])
	copy(s.ID.RemoteAddress[:], remote[:])
	s.State, s.UID, s.Inode = uint8(state), uint32(uid), uint32(inode)
	return s, localIs4 && remoteIs4, errors.Join(localErr, remoteErr, stateErr, uidErr, inodeErr)
}

// parseProcAddress parses an address in words of the host's byte order, a colon and a port. The
// unspecified address of IPv6 counts as that of IPv4, for which its listeners accept, too.
func parseProcAddress(text []byte, port *[2]byte) (address [4]byte, is4 bool, err error) {
	before, after, _ := bytes.Cut(text, []byte(":"))
	var raw [16]byte
	n, err := hex.Decode(raw[:], before[:min(len(before), 2*len(raw))])
	number, portErr := strconv.ParseUint(string(after), 16, 16)
	if err := errors.Join(err, portErr); err != nil {
		return address, false, err
	}
	binary.BigEndian.PutUint16(port[:], uint16(number))
	for i := 0; i+4 <= n; i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	if n == len(address) {
		return [4]byte(raw[:4]), true, nil
	}
	ip := netip.AddrFrom16(raw).Unmap()
	if ip.Is4() {
		address = ip.As4()
	}
	return address, ip.Is4() || ip.IsUnspecified(), nil
}
