//go:build e2e

package e2e

import "strings"

// fileSystemIsServedOverIPv6: its mount targets have no other addresses, so every byte goes over them.
func fileSystemIsServedOverIPv6(l *lab) {
	ns := l.namespace("ipv6")
	fileSystem, addresses := l.fileSystemWith("ipv6")
	if len(addresses) != 2 || !strings.HasPrefix(addresses[0], "fd00:") || !strings.HasPrefix(addresses[1], "fd00:") {
		l.Fatalf("addresses %q: want two, of IPv6", addresses)
	}
	l.claimComesAndGoes(ns, "six", "file_system_id: "+fileSystem)
	if table := l.table(); !strings.Contains(table, "mount_target_ipv6_by_zone:") {
		l.Errorf("the table lacks the addresses of IPv6:\n%s", table)
	}
	l.deleteFileSystem(fileSystem)
}

// nodesWithoutIPv4UseIPv6: nodes without a route to the IPv4 addresses of mount targets connect to their others.
func nodesWithoutIPv4UseIPv6(l *lab) {
	ns := l.namespace("no-ipv4")
	fileSystem, addresses := l.fileSystemWith("dual")
	for _, address := range addresses {
		if strings.Contains(address, ":") {
			continue
		}
		for _, node := range []string{"node-1", "node-2"} {
			l.Cleanup(func() { l.onNode(node, "ip route del unreachable "+address+" || true") })
			l.onNode(node, "ip route replace unreachable "+address+" && ! ip route get "+address)
		}
	}
	l.claimComesAndGoes(ns, "both", "file_system_id: "+fileSystem)
	l.deleteFileSystem(fileSystem)
}

// fileSystemWith makes a file system with a mount target in each zone, of an address type, and returns their
// addresses.
func (l *lab) fileSystemWith(addressType string) (id string, addresses []string) {
	l.Helper()
	id = strings.TrimSpace(l.lab("efs", "create-file-system", "--fs-name", addressType))
	for _, zone := range []string{"us-east-1a", "us-east-1b"} {
		target := strings.Fields(l.lab("efs", "create-mount-target", "--file-system", id, "--zone", zone, "--ip-address-type", addressType))
		addresses = append(addresses, target[1:]...)
	}
	return id, addresses
}
