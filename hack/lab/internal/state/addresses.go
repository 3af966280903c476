package state

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory"
)

// Addresses inside a lab's network namespace. They are the same in every lab, because namespaces are
// isolated from each other.
const (
	Bridge       = "lab0"
	BridgePrefix = "10.90.0.1/16"
	HostAddress  = "10.90.0.1" // the control plane, the registry, the stand-in
	// BridgeIPv6Prefix has the networks of all zones, as BridgePrefix.
	BridgeIPv6Prefix = "fd00:90::1/32"
	HostIPv6         = "fd00:90::1"
	// MetadataAddress and MetadataIPv6 are where EC2 instances find their metadata.
	MetadataAddress = "169.254.169.254"
	MetadataIPv6    = "fd00:ec2::254"

	APIServerPort = 6443
	RegistryPort  = 5000
	EFSAPIPort    = 4566

	// RegistryHost is the registry's name in pods' image fields.
	RegistryHost = "registry.lab"

	Region = "us-east-1"
	VPCID  = "vpc-0123456789abcdef0"
)

// Network has the addresses that nodes, pods and Services use. The lab's own side always has those of both
// families.
type Network struct {
	Host        string // one of HostAddress and HostIPv6
	Metadata    string // of instances
	PodCIDR     string // of all nodes' pods
	ServiceCIDR string
	APIService  string // the first of ServiceCIDR: Service kubernetes
	Everywhere  string // all addresses of the family: where a default route leads
}

// NetworkOf returns the network of a lab whose nodes have addresses of both families, or of IPv6 only. Pods and
// Services have one family.
func NetworkOf(ipv6Only bool) Network {
	if ipv6Only {
		return Network{
			Host: HostIPv6, Metadata: MetadataIPv6,
			PodCIDR: "fd00:91::/32", ServiceCIDR: "fd00:96::/112", APIService: "fd00:96::1", Everywhere: "::/0",
		}
	}
	return Network{
		Host: HostAddress, Metadata: MetadataAddress,
		PodCIDR: "10.91.0.0/16", ServiceCIDR: "10.96.0.0/16", APIService: "10.96.0.1", Everywhere: "0.0.0.0/0",
	}
}

// HostPort returns the address of a port of HostAddress.
func HostPort(port int) string { return fmt.Sprintf("%s:%d", HostAddress, port) }

// Zones returns the lab's availability zones.
func Zones() []inventory.Zone {
	return []inventory.Zone{
		{Name: "us-east-1a", ID: "use1-az1", SubnetID: "subnet-0a000000000000001", CIDR: "10.90.1.0/24", IPv6CIDR: "fd00:90:0:1::/64"},
		{Name: "us-east-1b", ID: "use1-az2", SubnetID: "subnet-0b000000000000002", CIDR: "10.90.2.0/24", IPv6CIDR: "fd00:90:0:2::/64"},
	}
}

// MaxNodes keeps node addresses below those of the mount targets.
const MaxNodes = 100

// nodeNameRule is a DNS-1123 label that is short enough for a host name and a tap device.
var nodeNameRule = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?$`)

// Node is one virtual machine. Its addresses follow from its index.
type Node struct {
	Name  string `json:"name"`
	Index int    `json:"index"` // 1 to 100, unique in its lab
	Zone  string `json:"zone"`  // zone name

	IPv6Only bool `json:"ipv6Only,omitempty"` // as in the lab's settings
}

// NewNode makes a node with the lowest free index; zone "" stands for the zone with the fewest nodes.
func (s Settings) NewNode(name, zone string) (Node, error) {
	nodes := s.Nodes
	if !nodeNameRule.MatchString(name) {
		return Node{}, fmt.Errorf("node name %q: want 1 to 30 of a-z, 0-9 and -, not beginning or ending with -", name)
	}
	if slices.ContainsFunc(nodes, func(n Node) bool { return n.Name == name }) {
		return Node{}, fmt.Errorf("node %s exists already", name)
	}
	if zone == "" {
		zone = smallestZone(nodes)
	}
	if _, err := inventory.FindZone(Zones(), zone); err != nil {
		return Node{}, fmt.Errorf("node %s: %w", name, err)
	}
	for i := 1; i <= MaxNodes; i++ {
		if !slices.ContainsFunc(nodes, func(n Node) bool { return n.Index == i }) {
			return Node{Name: name, Index: i, Zone: zone, IPv6Only: s.IPv6Only}, nil
		}
	}
	return Node{}, fmt.Errorf("node %s: a lab has at most %d nodes", name, MaxNodes)
}

func smallestZone(nodes []Node) string {
	count := map[string]int{}
	for _, n := range nodes {
		count[n.Zone]++
	}
	return slices.MinFunc(Zones(), func(a, b inventory.Zone) int { return cmp.Compare(count[a.Name], count[b.Name]) }).Name
}

// Address returns the node's own address, in its zone's subnet, as Kubernetes knows it.
func (n Node) Address() string {
	if n.IPv6Only {
		return n.IPv6()
	}
	return n.IPv4()
}

// IPv4 returns the node's address of that family, "" if it has none.
func (n Node) IPv4() string {
	if n.IPv6Only {
		return ""
	}
	zone, err := inventory.FindZone(Zones(), n.Zone)
	if err != nil {
		return "" // lab.json was edited by hand: QEMU fails then
	}
	return fmt.Sprintf("%s%d", strings.TrimSuffix(zone.CIDR, "0/24"), 10+n.Index)
}

// IPv6 returns the node's address of that family, in its zone's subnet.
func (n Node) IPv6() string {
	zone, err := inventory.FindZone(Zones(), n.Zone)
	if err != nil {
		return "" // as for Address
	}
	return strings.TrimSuffix(zone.IPv6CIDR, "/64") + strconv.Itoa(10+n.Index)
}

// PodCIDR returns the network of the node's pods.
func (n Node) PodCIDR() string {
	if n.IPv6Only {
		return fmt.Sprintf("fd00:91:0:%d::/64", n.Index)
	}
	return fmt.Sprintf("10.91.%d.0/24", n.Index)
}

// MAC returns the hardware address of the node's one interface.
func (n Node) MAC() string { return fmt.Sprintf("52:54:00:5a:00:%02x", n.Index) }

// Tap returns the node's network interface on the lab's side.
func (n Node) Tap() string { return fmt.Sprintf("tap%d", n.Index) }

// Part returns the name of the node's machine among the lab's processes.
func (n Node) Part() string { return n.Name }
