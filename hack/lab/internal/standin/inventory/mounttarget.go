package inventory

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"

	"gnuthought.com/efs-stunnel/hack/lab/internal/oneof"
)

// The last bytes of mount targets' addresses. Those of nodes are lower.
const (
	firstHost = 200
	lastHost  = 254
)

// NewMountTarget asks for a mount target.
type NewMountTarget struct {
	FileSystemID string `json:"fileSystemID"`
	Zone         string `json:"zone"` // zone name
	// AddressType is the families of its addresses; "" for those of Options.
	AddressType AddressType `json:"addressType"`
}

// CreateMountTarget gives a file system an address in a zone.
func (s *Store) CreateMountTarget(r NewMountTarget) (MountTarget, error) {
	zone, err := s.Zone(r.Zone)
	if r.AddressType != "" && err == nil {
		err = oneof.Check("address type", r.AddressType, AddressTypes())
	}
	if err != nil {
		return MountTarget{}, fmt.Errorf("creating mount target: %w", err)
	}
	t := MountTarget{
		ID: s.options.NewID("fsmt"), FileSystemID: r.FileSystemID, Zone: zone.Name, SubnetID: zone.SubnetID,
		NetworkInterfaceID: s.options.NewID("eni"), State: Available,
	}
	err = s.change(func(next Snapshot) error {
		if err := next.accepts(t); err != nil {
			return fmt.Errorf("creating mount target: %w", err)
		}
		if err := s.setAddresses(next, &t, zone, r.AddressType); err != nil {
			return fmt.Errorf("creating mount target: %w", err)
		}
		next.MountTargets[t.ID] = t
		return nil
	})
	return t, err
}

// setAddresses gives a new mount target its addresses.
func (s *Store) setAddresses(next Snapshot, t *MountTarget, zone Zone, families AddressType) error {
	ipv4, ipv6, err := freeAddresses(next, zone)
	if err != nil {
		return err
	}
	families = cmp.Or(families, s.options.AddressType, IPv4)
	if families != IPv6 {
		t.Address = ipv4
	}
	if families != IPv4 {
		t.IPv6 = ipv6
	}
	return nil
}

// accepts applies EFS's rules: one mount target per zone, and only one at all for a One Zone file
// system.
func (s Snapshot) accepts(t MountTarget) error {
	fs, err := fileSystems().get(s, t.FileSystemID)
	if err != nil {
		return err
	}
	if fs.Zone != "" && fs.Zone != t.Zone {
		return fmt.Errorf("file system %s is in zone %s only", fs.ID, fs.Zone)
	}
	for _, other := range s.MountTargetsOf(fs.ID) {
		if other.Zone == t.Zone {
			return fmt.Errorf("file system %s has %s in zone %s already", fs.ID, other.ID, t.Zone)
		}
	}
	return nil
}

// SetMountTargetState changes what the API reports. The mount target serves as before.
func (s *Store) SetMountTargetState(id string, state State) error {
	return mountTargets().update(s, id, func(t *MountTarget) error {
		t.State = state
		return state.check()
	})
}

// DeleteMountTarget removes a mount target and its address.
func (s *Store) DeleteMountTarget(id string) error { return mountTargets().remove(s, id) }

// freeAddresses finds an address of each family with the same last byte, which no mount target has.
func freeAddresses(s Snapshot, zone Zone) (ipv4, ipv6 string, err error) {
	prefix, err := netip.ParsePrefix(zone.CIDR)
	prefix6, err6 := netip.ParsePrefix(zone.IPv6CIDR)
	if err := errors.Join(err, err6); err != nil {
		return "", "", fmt.Errorf("zone %s: %w", zone.Name, err)
	}
	taken := map[string]bool{}
	for _, t := range s.MountTargets {
		taken[t.Address], taken[t.IPv6] = true, true
	}
	bytes, bytes6 := prefix.Masked().Addr().As4(), prefix6.Masked().Addr().As16()
	for host := firstHost; host <= lastHost; host++ {
		bytes[3], bytes6[15] = byte(host), byte(host)
		ipv4, ipv6 = netip.AddrFrom4(bytes).String(), netip.AddrFrom16(bytes6).String()
		if !taken[ipv4] && !taken[ipv6] {
			return ipv4, ipv6, nil
		}
	}
	return "", "", fmt.Errorf("subnet %s has no free address for a mount target", zone.SubnetID)
}
