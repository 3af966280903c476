package inventory

import (
	"fmt"
	"net/netip"
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
}

// CreateMountTarget gives a file system an address in a zone.
func (s *Store) CreateMountTarget(r NewMountTarget) (MountTarget, error) {
	zone, err := s.Zone(r.Zone)
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
		if t.Address, err = freeAddress(next, zone); err != nil {
			return fmt.Errorf("creating mount target: %w", err)
		}
		next.MountTargets[t.ID] = t
		return nil
	})
	return t, err
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

func freeAddress(s Snapshot, zone Zone) (string, error) {
	prefix, err := netip.ParsePrefix(zone.CIDR)
	if err != nil {
		return "", fmt.Errorf("zone %s: %w", zone.Name, err)
	}
	taken := map[string]bool{}
	for _, t := range s.MountTargets {
		taken[t.Address] = true
	}
	bytes := prefix.Masked().Addr().As4()
	for host := firstHost; host <= lastHost; host++ {
		bytes[3] = byte(host)
		if address := netip.AddrFrom4(bytes).String(); !taken[address] {
			return address, nil
		}
	}
	return "", fmt.Errorf("subnet %s has no free address for a mount target", zone.SubnetID)
}
