package standin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"gnuthought.com/efs-stunnel/hack/lab/internal/host"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
)

// reconcileAddresses adds the mount targets' addresses to the bridge, and removes those of deleted
// ones. On the bridge only mount targets have addresses in the zones' subnets.
func reconcileAddresses(ctx context.Context, snapshot inventory.Snapshot) error {
	present, err := presentAddresses()
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	var problems []error
	for _, t := range snapshot.MountTargets {
		for _, address := range t.Addresses() {
			wanted[address] = true
			if !present[address] {
				problems = append(problems, host.Run(ctx, "ip", "address", "replace", hostPrefix(address), "dev", state.Bridge, "nodad"))
			}
		}
	}
	for address := range present {
		if !wanted[address] {
			problems = append(problems, host.Run(ctx, "ip", "address", "delete", hostPrefix(address), "dev", state.Bridge))
		}
	}
	return errors.Join(problems...)
}

// hostPrefix returns the network of one address.
func hostPrefix(address string) string {
	if strings.Contains(address, ":") {
		return address + "/128"
	}
	return address + "/32"
}

// presentAddresses returns the bridge's addresses in the zones' subnets.
func presentAddresses() (map[string]bool, error) {
	bridge, err := net.InterfaceByName(state.Bridge)
	if err != nil {
		return nil, fmt.Errorf("reading addresses of bridge %s: %w", state.Bridge, err)
	}
	addresses, err := bridge.Addrs()
	if err != nil {
		return nil, fmt.Errorf("reading addresses of bridge %s: %w", state.Bridge, err)
	}
	present := map[string]bool{}
	for _, a := range addresses {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue // not an IP address
		}
		for _, z := range state.Zones() {
			for _, cidr := range []string{z.CIDR, z.IPv6CIDR} {
				if subnet, err := netip.ParsePrefix(cidr); err == nil && subnet.Contains(prefix.Addr()) {
					present[prefix.Addr().String()] = true
				}
			}
		}
	}
	return present, nil
}
