//go:build e2e

package e2e

import "strings"

// fileSystemIsServedOverIPv6: its mount targets have no other addresses, so every byte goes over them.
func fileSystemIsServedOverIPv6(l *lab) {
	ns := l.namespace("ipv6")
	fileSystem := strings.TrimSpace(l.lab("efs", "create-file-system", "--fs-name", "ipv6"))
	for _, zone := range []string{"us-east-1a", "us-east-1b"} {
		target := l.lab("efs", "create-mount-target", "--file-system", fileSystem, "--zone", zone, "--ip-address-type", "ipv6")
		_, address, _ := strings.Cut(strings.TrimSpace(target), " ")
		if !strings.HasPrefix(address, "fd00:") || strings.Contains(address, " ") {
			l.Fatalf("mount target %q: want one address, of IPv6", target)
		}
	}
	l.claimComesAndGoes(ns, "six", "file_system_id: "+fileSystem)
	if table := l.table(); !strings.Contains(table, "mount_target_ipv6_by_zone:") {
		l.Errorf("the table lacks the addresses of IPv6:\n%s", table)
	}
	l.deleteFileSystem(fileSystem)
}
