package routing

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/node/clientcert"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// Location is the region, zone and subnets of a node. Each may be unknown.
type Location struct {
	Region  string   `json:"region,omitempty"`
	Zone    string   `json:"zone,omitempty"`
	Subnets []string `json:"subnets,omitempty"` // of the primary network interface first
}

// Known reports whether zone or subnet is known, by which distances are computed.
func (l Location) Known() bool { return l.Zone != "" || len(l.Subnets) > 0 }

// MountTarget is one address of a file system.
type MountTarget struct {
	Address  netip.Addr
	Zone     string // "" when unknown
	Distance Distance
}

// Distance is how far a mount target is from the node, in steps of latency and cost.
type Distance int

// Distances, the nearest first.
const (
	SameSubnet Distance = iota
	SameZone
	OtherZone // or an unknown one
	NoRoute   // the node has no route to addresses of this family
)

// Routes are the families of addresses to which a node has no route; the zero value is a node with both.
// They are known for nodes that have only one of them, and only if the table has both.
type Routes struct{ NoIPv4, NoIPv6 bool }

// String is a word for logs.
func (r Routes) String() string {
	switch {
	case r.NoIPv4:
		return "NoRouteForIPv4"
	case r.NoIPv6:
		return "NoRouteForIPv6"
	}
	return "NoPreference"
}

// byDistance returns the mount targets of a file system, nearest first. The order among those of
// equal distance depends on nothing but zone and address, so it is the same in each plan. A mount target
// with two addresses counts as two, of which the IPv4 one is first, because it always was.
func byDistance(target ports.Target, location Location, routes Routes) []MountTarget {
	var inSubnets []netip.Addr
	for _, subnet := range location.Subnets {
		inSubnets = append(inSubnets, target.AddressBySubnet[subnet].Unmap(), target.IPv6BySubnet[subnet].Unmap())
	}
	var targets []MountTarget
	for address, zone := range zonesByAddress(target) {
		t := MountTarget{address, zone, OtherZone}
		switch {
		case address.Is4() && routes.NoIPv4, address.Is6() && routes.NoIPv6:
			t.Distance = NoRoute
		case slices.Contains(inSubnets, address):
			t.Distance = SameSubnet
		case zone != "" && zone == location.Zone:
			t.Distance = SameZone
		}
		targets = append(targets, t)
	}
	slices.SortFunc(targets, func(a, b MountTarget) int {
		return cmp.Or(cmp.Compare(a.Distance, b.Distance), cmp.Compare(a.Zone, b.Zone), a.Address.Compare(b.Address))
	})
	return targets
}

// zonesByAddress returns the zone of each usable address.
func zonesByAddress(target ports.Target) map[netip.Addr]string {
	zones := map[netip.Addr]string{}
	for _, bySubnet := range []map[string]netip.Addr{target.AddressBySubnet, target.IPv6BySubnet} {
		for _, address := range bySubnet {
			if usable(address) {
				zones[address.Unmap()] = target.AvailabilityZone
			}
		}
	}
	for _, byZone := range []map[string]netip.Addr{target.AddressByZone, target.IPv6ByZone} {
		for _, zone := range slices.Sorted(maps.Keys(byZone)) {
			if address := byZone[zone]; usable(address) {
				zones[address.Unmap()] = zone
			}
		}
	}
	return zones
}

// Addresses returns the usable addresses of all targets of a table, by family.
func Addresses(table ports.Table) (ipv4, ipv6 []netip.Addr) {
	for _, target := range table.Targets {
		for address := range zonesByAddress(target) {
			if address.Is4() {
				ipv4 = append(ipv4, address)
			} else {
				ipv6 = append(ipv6, address)
			}
		}
	}
	return ipv4, ipv6
}

// usable excludes addresses that no mount target has: unspecified, multicast, broadcast, and
// link-local ones, at which the instance metadata service hands out credentials.
func usable(address netip.Addr) bool {
	address = address.Unmap()
	return address.IsValid() && !address.IsUnspecified() && !address.IsMulticast() &&
		!address.IsLinkLocalUnicast() && address != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// Certificate is the client certificate of a tunnel, or the reason why there is none.
type Certificate struct {
	Identity clientcert.Identity // that of the certificate: an earlier one, while none can be made with the current
	File     string
	Key      string    // the file of its key
	Sum      string    // the SHA-256 of the file in hexadecimal; "" while there is none
	Until    time.Time // when servers stop accepting it
	Problem  string    // why it cannot be made or renewed; "" without a problem
}

// Identities returns the identities of those tunnels that need a certificate: of the table's, and of used ones
// that left it.
func Identities(in Input) map[string]clientcert.Identity {
	all := map[string]clientcert.Identity{}
	for _, key := range in.Table.Keys() {
		all[Name(key)] = identityOf(key, in.Table.Targets[key.FileSystem], in.Settings)
	}
	for name := range in.missing() {
		if in.Used[name] {
			all[name] = in.States[name].Identity
		}
	}
	maps.DeleteFunc(all, func(_ string, needed clientcert.Identity) bool { return needed == clientcert.Identity{} })
	return all
}

// identityOf returns a tunnel's identity, zero if it needs no certificate. An access point needs one also without IAM:
// only the certificate names the access point, and without it the server exports the whole file system. A server of
// one's own has no IAM.
func identityOf(key ports.Key, target ports.Target, s Settings) clientcert.Identity {
	identity := clientcert.Identity{FileSystem: key.FileSystem, AccessPoint: key.AccessPoint, Installed: target.ClientCertificate}
	iam := target.IAM
	if key.AccessPoint != "" {
		iam = target.AccessPoints[key.AccessPoint].IAM
	}
	switch {
	case identity.Installed:
	case iam:
		identity.IAM, identity.Region = true, regionOf(target.DNSName, s.Region)
	case key.AccessPoint == "":
		return clientcert.Identity{}
	}
	return identity
}

// regionOf returns the region in a DNS name of EFS, [<zone>.]<id>.efs.<region>.<suffix>, and the
// node's region for other names.
func regionOf(dnsName, nodeRegion string) string {
	if _, after, found := strings.Cut(dnsName, ".efs."); found {
		region, _, _ := strings.Cut(after, ".")
		return region
	}
	return nodeRegion
}

// certificate returns the certificate of a tunnel, the zero Certificate if it needs none. When IAM is
// turned on for a tunnel, the tunnel continues without it until there is a certificate: volumes that
// are mounted must not depend on the credentials.
func (b *builder) certificate(t Tunnel, state State) (Certificate, UnusableTarget) {
	if t.Identity == (clientcert.Identity{}) {
		return Certificate{}, UnusableTarget{}
	}
	held := b.in.Certificates[t.Name]
	switch {
	case held.Sum != "" && held.Identity.SameTarget(t.Identity):
		return held, UnusableTarget{}
	case state.WithoutCertificate && t.Identity.AccessPoint == "" && slices.Contains(b.in.Files, t.Name):
		return Certificate{Problem: held.Problem}, UnusableTarget{}
	case t.Identity.IAM && t.Identity.Region == "":
		return Certificate{}, UnusableTarget{Reason: ClientCertificate, Message: "the region that its client certificate must be signed " +
			"for is unknown; let the manager write dns_name, or set --aws-region"}
	case held.Identity == t.Identity && held.Problem != "":
		return Certificate{}, UnusableTarget{Reason: ClientCertificate, Message: "its client certificate cannot be made or read: " + held.Problem}
	}
	return Certificate{}, UnusableTarget{Reason: awaitingCertificate}
}

// ReadTable decodes a table. Of a target that cannot be decoded, it returns the error, by the key as
// written, which may be no valid ID, and the table has it as in the last one, if at all. With an error,
// which is about the whole table, it returns the last table.
func ReadTable(text []byte, last ports.Table) (ports.Table, map[string]error, error) {
	table, rejected, err := ports.DecodeLenient(text)
	if err == nil {
		return table, nil, nil
	}
	if len(table.Targets) == 0 {
		return last, rejected, err
	}
	for id := range rejected {
		if target, ok := last.Targets[id]; ok {
			table.Targets[id] = target
		}
	}
	return ports.Table{Targets: table.Targets}, rejected, nil
}
