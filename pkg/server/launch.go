package server

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/program/process"
)

// Addresses of the loopback interface.
const (
	loopback4 = "127.0.0.1"
	loopback6 = "::1"
)

// loopback returns the address on which Ganesha listens: that of IPv4 if the pod has IPv4, because Ganesha
// looks addresses up and gets only those of families that an interface has.
func loopback() string {
	addresses, err := net.InterfaceAddrs()
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok && network.IP.To4() != nil && !network.IP.IsLoopback() {
			return loopback4
		}
	}
	if err != nil || len(addresses) == 0 {
		return loopback4
	}
	return loopback6
}

// LaunchCommand is the first argument of a process that calls Launch with those that follow.
const LaunchCommand = "launch"

// Launch replaces this process by one of the programs, as the arguments request. It returns only on error.
func Launch(args []string) error {
	switch {
	case len(args) == 3 && args[0] == stunnelTitle:
		return process.Launch(args[1], args[2])
	case len(args) > 1 && args[0] == ganeshaTitle:
		return launchGanesha(args[1:])
	}
	return errors.New("want launch and the command of a program")
}

// launchGanesha hides IPv6 from Ganesha. Where no interface has an IPv6 address, but the kernel has IPv6,
// Ganesha would ignore Bind_addr and listen on all addresses, in plain text.
func launchGanesha(command []string) error {
	// The kernel keeps the filter for each thread; the one that calls exec becomes the process.
	runtime.LockOSThread()
	// Without it, a filter needs CAP_SYS_ADMIN, and exec would give that back to root.
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("keeping nfs-ganesha from new privileges: %w", err)
	}
	if err := dropCapability(unix.CAP_SYS_ADMIN); err != nil {
		return fmt.Errorf("taking the right to set quotas from nfs-ganesha: %w", err)
	}
	if loopback() == loopback4 {
		if err := denySockets(unix.AF_INET6); err != nil {
			return fmt.Errorf("denying nfs-ganesha sockets of IPv6: %w", err)
		}
	}
	return process.Exec(ganeshaTitle, command)
}

// dropCapability takes a capability from this thread.
func dropCapability(capability uint) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData // of 32 capabilities each
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return err
	}
	set, bit := &sets[capability/32], uint32(1)<<(capability%32)
	set.Effective, set.Permitted, set.Inheritable = set.Effective&^bit, set.Permitted&^bit, set.Inheritable&^bit
	return unix.Capset(&header, &sets[0])
}

// Offsets in seccomp_data: the number of the system call, and the low half of its first argument. The
// architectures of the images are little-endian.
const (
	offsetCall  = 0
	offsetFirst = 16
)

// denySockets has the kernel answer calls for sockets of a family as if it did not know the family.
func denySockets(family uint32) error {
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	unless := func(value uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: skip}
	}
	answer := func(result uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: result}
	}
	filter := []unix.SockFilter{
		load(offsetCall), unless(unix.SYS_SOCKET, 3),
		load(offsetFirst), unless(family, 1),
		answer(unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)),
		answer(unix.SECCOMP_RET_ALLOW),
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}
