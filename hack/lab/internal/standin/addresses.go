package standin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

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
		wanted[t.Address] = true
		if !present[t.Address] {
			problems = append(problems, host.Run(ctx, "ip", "address", "replace", t.Address+"/32", "dev", state.Bridge))
		}
	}
	for address := range present {
		if !wanted[address] {
			problems = append(problems, host.Run(ctx, "ip", "address", "delete", address+"/32", "dev", state.Bridge))
		}
	}
	return errors.Join(problems...)
}

// presentAddresses are the bridge's addresses in the zones' subnets.
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
			if subnet, err := netip.ParsePrefix(z.CIDR); err == nil && subnet.Contains(prefix.Addr()) {
				present[prefix.Addr().String()] = true
			}
		}
	}
	return present, nil
}
