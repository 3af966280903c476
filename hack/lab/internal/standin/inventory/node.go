package inventory

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// PutNode adds or replaces a node.
func (s *Store) PutNode(n Node) error {
	if err := s.checkNode(n); err != nil {
		return fmt.Errorf("putting node %q: %w", n.Name, err)
	}
	return s.change(func(next Snapshot) error {
		next.Nodes[n.Name] = n
		return nil
	})
}

func (s *Store) checkNode(n Node) error {
	if n.Name == "" {
		return errors.New("a node needs a name")
	}
	if _, err := netip.ParseAddr(n.Address); err != nil {
		return fmt.Errorf("address %q: want an IP address", n.Address)
	}
	if _, err := netip.ParsePrefix(n.PodCIDR); n.PodCIDR != "" && err != nil {
		return fmt.Errorf("pod network %q: want a CIDR", n.PodCIDR)
	}
	if _, err := net.ParseMAC(n.MAC); err != nil {
		return fmt.Errorf("hardware address %q: want six bytes such as 52:54:00:00:00:01", n.MAC)
	}
	_, err := s.Zone(n.Zone)
	return err
}

// DeleteNode removes a node. Removing one that does not exist is no error.
func (s *Store) DeleteNode(name string) error {
	return s.change(func(next Snapshot) error {
		delete(next.Nodes, name)
		return nil
	})
}

// NodeOf finds the node that an address belongs to: the node's own address or one of its pods'.
func (s Snapshot) NodeOf(client netip.Addr) (Node, bool) {
	client = client.Unmap()
	for _, n := range s.Nodes {
		if n.Address == client.String() {
			return n, true
		}
	}
	for _, n := range s.Nodes {
		if prefix, err := netip.ParsePrefix(n.PodCIDR); err == nil && prefix.Contains(client) {
			return n, true
		}
	}
	return Node{}, false
}
