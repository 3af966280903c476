package world

import (
	"fmt"
	"net/netip"
	"strings"
)

// The last bytes of mount targets' addresses; nodes have lower ones.
const (
	firstHost = 200
	lastHost  = 254
)

// NewMountTarget asks for a mount target.
type NewMountTarget struct {
	FileSystemID string `json:"fileSystemID"`
	Zone         string `json:"zone"` // zone name
	State        State  `json:"state,omitempty"`
}

// CreateMountTarget gives a file system an address in a zone.
func (s *Store) CreateMountTarget(r NewMountTarget) (MountTarget, error) {
	zone, err := s.zone(r.Zone)
	if err != nil {
		return MountTarget{}, fmt.Errorf("creating mount target: %w", err)
	}
	t := MountTarget{
		ID: s.options.NewID("fsmt"), FileSystemID: r.FileSystemID, Zone: zone.Name, SubnetID: zone.SubnetID,
		NetworkInterfaceID: s.options.NewID("eni"), State: r.State,
	}
	if t.State == "" {
		t.State = Available
	}
	if err := t.State.check(); err != nil {
		return MountTarget{}, fmt.Errorf("creating mount target: %w", err)
	}
	err = s.change(func(w *World) error {
		if err := w.admits(t); err != nil {
			return fmt.Errorf("creating mount target: %w", err)
		}
		if t.Address, err = freeAddress(*w, zone); err != nil {
			return fmt.Errorf("creating mount target: %w", err)
		}
		w.MountTargets[t.ID] = t
		return nil
	})
	return t, err
}

// admits applies EFS's rules: one mount target per zone, and only one at all
// for a One Zone file system.
func (w World) admits(t MountTarget) error {
	fs, err := w.fileSystem(t.FileSystemID)
	if err != nil {
		return err
	}
	if fs.Zone != "" && fs.Zone != t.Zone {
		return fmt.Errorf("file system %s is in zone %s only: %w", fs.ID, fs.Zone, ErrConflict)
	}
	for _, other := range w.MountTargetsOf(fs.ID) {
		if other.Zone == t.Zone {
			return fmt.Errorf("file system %s has %s in zone %s already: %w", fs.ID, other.ID, t.Zone, ErrConflict)
		}
	}
	return nil
}

// SetMountTargetState changes what the API says; the address serves as before.
func (s *Store) SetMountTargetState(id string, state State) error {
	if err := state.check(); err != nil {
		return fmt.Errorf("updating mount target %s: %w", id, err)
	}
	return s.change(func(w *World) error {
		t, ok := w.MountTargets[id]
		if !ok {
			return fmt.Errorf("updating mount target %s: %w", id, ErrNotFound)
		}
		t.State = state
		w.MountTargets[id] = t
		return nil
	})
}

// DeleteMountTarget removes a mount target and its address.
func (s *Store) DeleteMountTarget(id string) error {
	return s.change(func(w *World) error {
		if _, ok := w.MountTargets[id]; !ok {
			return fmt.Errorf("deleting mount target %s: %w", id, ErrNotFound)
		}
		delete(w.MountTargets, id)
		return nil
	})
}

func (s *Store) zone(name string) (Zone, error) {
	zone, ok := s.Zone(name)
	if ok {
		return zone, nil
	}
	names := make([]string, 0, len(s.options.Zones))
	for _, z := range s.options.Zones {
		names = append(names, z.Name)
	}
	return Zone{}, fmt.Errorf("zone %q: want one of %s: %w", name, strings.Join(names, ", "), ErrInvalid)
}

func freeAddress(w World, zone Zone) (string, error) {
	prefix, err := netip.ParsePrefix(zone.CIDR)
	if err != nil {
		return "", fmt.Errorf("zone %s: %w", zone.Name, err)
	}
	taken := map[string]bool{}
	for _, t := range w.MountTargets {
		taken[t.Address] = true
	}
	bytes := prefix.Masked().Addr().As4()
	for host := firstHost; host <= lastHost; host++ {
		bytes[3] = byte(host)
		if address := netip.AddrFrom4(bytes).String(); !taken[address] {
			return address, nil
		}
	}
	return "", fmt.Errorf("subnet %s has no free address for a mount target: %w", zone.SubnetID, ErrConflict)
}
