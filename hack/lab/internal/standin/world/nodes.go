package world

import (
	"fmt"
	"net"
	"net/netip"
)

// PutNode adds or replaces a node.
func (s *Store) PutNode(n Node) error {
	if err := s.checkNode(n); err != nil {
		return fmt.Errorf("putting node %q: %w", n.Name, err)
	}
	return s.change(func(w *World) error {
		w.Nodes[n.Name] = n
		return nil
	})
}

func (s *Store) checkNode(n Node) error {
	if n.Name == "" {
		return fmt.Errorf("a node needs a name: %w", ErrInvalid)
	}
	if _, err := netip.ParseAddr(n.Address); err != nil {
		return fmt.Errorf("address %q: want an IP address: %w", n.Address, ErrInvalid)
	}
	if _, err := netip.ParsePrefix(n.PodCIDR); n.PodCIDR != "" && err != nil {
		return fmt.Errorf("pod network %q: want a CIDR: %w", n.PodCIDR, ErrInvalid)
	}
	if _, err := net.ParseMAC(n.MAC); err != nil {
		return fmt.Errorf("hardware address %q: want six bytes such as 52:54:00:00:00:01: %w", n.MAC, ErrInvalid)
	}
	_, err := s.zone(n.Zone)
	return err
}

// DeleteNode forgets a node; one that is not known is fine.
func (s *Store) DeleteNode(name string) error {
	return s.change(func(w *World) error {
		delete(w.Nodes, name)
		return nil
	})
}

// NodeOf finds the node from which an address asks: its own or a pod's.
func (w World) NodeOf(client netip.Addr) (Node, bool) {
	client = client.Unmap()
	for _, n := range w.Nodes {
		if n.Address == client.String() {
			return n, true
		}
	}
	for _, n := range w.Nodes {
		if prefix, err := netip.ParsePrefix(n.PodCIDR); err == nil && prefix.Contains(client) {
			return n, true
		}
	}
	return Node{}, false
}
