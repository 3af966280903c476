package routing

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/tunnel/spec"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// RemovalGrace is how long a tunnel outlives its target's place in the table. Targets leave it
// when no volume names them; the grace is for tables that were edited by hand.
const RemovalGrace = 10 * time.Minute

// Settings are the same for all tunnels.
type Settings struct {
	CAFile string
	// DNSSuffix makes the name that a server's certificate must have, where the table lacks
	// it; "" when the region is not known.
	DNSSuffix  string
	Region     string // of the node; "" when it is not known
	KeyFile    string // of all client certificates
	ServerPort uint16 // of mount targets
	Reserved   []int  // local ports that no tunnel may take
}

// Input is the world as the agent saw it.
type Input struct {
	Table    ports.Table
	Place    Place
	Memories map[string]Memory // by tunnel
	Files    []string          // tunnels that have a specification
	// Standby are the tunnels that are to prove themselves beside another pod that has their port.
	Standby map[string]bool
	// Certificates are those that the node holds, by tunnel.
	Certificates map[string]Certificate
	Settings     Settings
	Now          time.Time
}

// Plan is what should be.
type Plan struct {
	Tunnels  []Tunnel // by name
	Troubles []Trouble
	// Waiting are tunnels whose client certificate is being made.
	Waiting []string
	// Remove are tunnels that are to end.
	Remove   []string
	Memories map[string]Memory
}

// Tunnel is one that can be served.
type Tunnel struct {
	Name    string
	Key     ports.Key
	Accept  netip.AddrPort
	Port    int // the real one, also on standby
	Host    string
	Nearest []MountTarget // in order of distance
	Active  MountTarget   // the one that is tried first
	Standby bool
	// Identity is what its certificate should say; the zero Identity for a tunnel that needs none.
	Identity Identity
	// Certificate is what it shows; without a file for none.
	Certificate Certificate
	Restart     int    // the serial in its specification
	Spec        []byte // as the supervisor reads it
}

// Away says whether it leads farther than it must.
func (t Tunnel) Away() bool { return t.Active.Distance > t.Nearest[0].Distance }

// Reason is why a target cannot be served, in the words of metrics and events.
type Reason string

// Reasons.
const (
	NoAddress         Reason = "NoAddress"
	BadPort           Reason = "BadPort"
	NoHostName        Reason = "NoHostName"
	ClientCertificate Reason = "ClientCertificate"
	BadValue          Reason = "BadValue"
)

// pending is no trouble: the certificate is on its way.
const pending Reason = "Pending"

// Trouble is a target that cannot be served as the table has it. What it has of a tunnel stays
// as it is.
type Trouble struct {
	Name    string
	Port    int
	Reason  Reason
	Message string
}

// Make decides what the tunnels should be.
//
//	               before                       after
//	new            in the table, no file        a file; on standby if another pod has its port
//	kept           in the table and a file      the same bytes unless something changed
//	takes over     on standby, proved           on the real port
//	in trouble     cannot be served             the file as it is; told
//	waiting        no client certificate yet    the same, and not told
//	turned to IAM  served without it            as before until there is a certificate with it
//	gone           not in the table, a file     the file as it is, then removed after a grace,
//	                                            or as soon as another target has its port
//
// Equal inputs give equal plans, and no target touches the tunnel of another.
func Make(in Input) Plan {
	b := builder{in: in, owners: portOwners(in.Table, in.Memories), plan: Plan{Memories: map[string]Memory{}}}
	for _, key := range in.Table.Keys() {
		b.add(key)
	}
	b.sweep()
	return b.plan
}

// Name is the tunnel's name in files, logs and metrics.
func Name(key ports.Key) string {
	if key.AccessPoint == "" {
		return key.FileSystem
	}
	return key.FileSystem + "." + key.AccessPoint
}

// portOwners gives each port to one target: to the one that had it, else to the first.
func portOwners(table ports.Table, memories map[string]Memory) map[int]string {
	owners := map[int]string{}
	for _, key := range table.Keys() {
		port, _ := table.Port(key)
		name := Name(key)
		if _, taken := owners[port]; !taken || memories[name].Port == port && memories[name].GoneSince.IsZero() {
			owners[port] = name
		}
	}
	return owners
}

type builder struct {
	in     Input
	owners map[int]string // port -> tunnel
	plan   Plan
}

func (b *builder) add(key ports.Key) {
	name := Name(key)
	memory := b.in.Memories[name]
	memory.GoneSince = time.Time{}
	port, _ := b.in.Table.Port(key)
	tunnel, trouble := b.tunnel(key, port, &memory)
	if trouble.Reason != "" {
		trouble.Name, trouble.Port = name, port
		b.tell(trouble)
		if _, known := b.in.Memories[name]; known || slices.Contains(b.in.Files, name) {
			b.plan.Memories[name] = memory
		}
		return
	}
	b.plan.Tunnels = append(b.plan.Tunnels, tunnel)
	b.plan.Memories[name] = memory
}

func (b *builder) tell(trouble Trouble) {
	if trouble.Reason == pending {
		b.plan.Waiting = append(b.plan.Waiting, trouble.Name)
		return
	}
	b.plan.Troubles = append(b.plan.Troubles, trouble)
}

// tunnel changes the memory only when the target can be served.
func (b *builder) tunnel(key ports.Key, port int, memory *Memory) (Tunnel, Trouble) {
	target := b.in.Table.Targets[key.FileSystem]
	t := Tunnel{
		Name: Name(key), Key: key, Port: port,
		Host: b.host(key.FileSystem, target), Nearest: nearest(target, b.in.Place),
	}
	if trouble := b.check(t); trouble.Reason != "" {
		return Tunnel{}, trouble
	}
	if identity, needed := identityOf(key, target, b.in.Settings); needed {
		t.Identity = identity
	}
	certificate, trouble := b.certificate(t, *memory)
	if trouble.Reason != "" {
		return Tunnel{}, trouble
	}
	t.Certificate = certificate
	next := *memory
	next.Port, next.Standby, next.Bare = port, b.in.Standby[t.Name], certificate.File == ""
	order := next.ordered(t.Nearest)
	t.Active, t.Standby = order[0], next.Standby
	t.Accept = acceptAt(port, next.Standby)
	t.Restart = next.Serial
	text, err := spec.Encode(b.spec(t, order))
	if err != nil {
		return Tunnel{}, Trouble{Reason: BadValue, Message: err.Error()}
	}
	t.Spec = text
	*memory = next
	return t, Trouble{}
}

func (b *builder) spec(t Tunnel, order []MountTarget) spec.Tunnel {
	s := spec.Tunnel{
		Name: t.Name, Accept: t.Accept, Connect: b.servers(order), CheckHost: t.Host,
		CAFile: b.in.Settings.CAFile, Restart: t.Restart,
	}
	if t.Certificate.File != "" {
		s.Cert, s.CertSum, s.Key = t.Certificate.File, t.Certificate.Sum, b.in.Settings.KeyFile
	}
	return s
}

func acceptAt(port int, standby bool) netip.AddrPort {
	address := wellknown.LoopbackAddress
	if standby {
		address = wellknown.StandbyAddress
	}
	return netip.AddrPortFrom(netip.MustParseAddr(address), uint16(port))
}

// host is what the certificate must name. Only names of EFS can be made up.
func (b *builder) host(id string, target ports.Target) string {
	if target.DNSName != "" || b.in.Settings.DNSSuffix == "" || efs.CheckFileSystemID(id) != nil {
		return target.DNSName
	}
	return id + "." + b.in.Settings.DNSSuffix
}

func (b *builder) check(t Tunnel) Trouble {
	switch {
	case t.Port < wellknown.MinPort || t.Port > wellknown.MaxPort || t.Port == wellknown.NFSPort ||
		slices.Contains(b.in.Settings.Reserved, t.Port):
		return Trouble{Reason: BadPort, Message: fmt.Sprintf("port %d is none that a tunnel may have", t.Port)}
	case b.owners[t.Port] != t.Name:
		return Trouble{Reason: BadPort, Message: fmt.Sprintf("port %d is that of %s", t.Port, b.owners[t.Port])}
	case len(t.Nearest) == 0:
		return Trouble{Reason: NoAddress, Message: "the table has no address of a mount target"}
	case t.Host == "":
		return Trouble{Reason: NoHostName, Message: "the table does not say which name the server's certificate must have; " +
			"let the manager write dns_name, or set --aws-region"}
	}
	return Trouble{}
}

func (b *builder) servers(order []MountTarget) []netip.AddrPort {
	var servers []netip.AddrPort
	for _, t := range order[:min(len(order), spec.MaxConnect)] {
		servers = append(servers, netip.AddrPortFrom(t.Address, b.in.Settings.ServerPort))
	}
	return servers
}

// sweep removes what is not in the table any more.
func (b *builder) sweep() {
	names := slices.Concat(b.in.Files, slices.Collect(maps.Keys(b.in.Memories)))
	slices.Sort(names)
	listed := map[string]bool{}
	for _, key := range b.in.Table.Keys() {
		listed[Name(key)] = true
	}
	for _, name := range slices.Compact(names) {
		if listed[name] {
			continue
		}
		memory := b.in.Memories[name]
		memory.GoneSince = earlier(memory.GoneSince, b.in.Now)
		_, reassigned := b.owners[memory.Port]
		if reassigned || b.in.Now.Sub(memory.GoneSince) >= RemovalGrace {
			b.plan.Remove = append(b.plan.Remove, name)
			continue
		}
		b.plan.Memories[name] = memory
	}
}

// NextRemoval is when the next tunnel's grace ends, zero for never.
func (p Plan) NextRemoval() time.Time {
	var next time.Time
	for _, memory := range p.Memories {
		if end := memory.GoneSince.Add(RemovalGrace); !memory.GoneSince.IsZero() && (next.IsZero() || end.Before(next)) {
			next = end
		}
	}
	return next
}

// Same says whether two plans have the same tunnel in force.
func (t Tunnel) Same(other Tunnel) bool {
	return t.Name == other.Name && bytes.Equal(t.Spec, other.Spec)
}
