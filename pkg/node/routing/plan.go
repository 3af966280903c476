// Package routing plans the tunnels of a node: the port and mount targets of each, the order in
// which stunnel tries the mount targets, and when a tunnel fails over. It is pure: a plan depends on
// its input only.
//
// A restart cuts all connections of a tunnel. So no tunnel is removed or restarted because something is
// unknown: a restart needs proof that the connections are lost or that a nearer mount target answers.
package routing

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/node/clientcert"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// RemovalGrace is how long a tunnel runs on after its target left the table and its last client
// disconnected. The manager removes a target only when no volume uses it; the grace period is for
// tables that were edited by hand, or restored from before the target was added.
const RemovalGrace = 10 * time.Minute

// Settings are the same for all tunnels.
type Settings struct {
	CAFile string
	CASum  string // tunnelspec.Tunnel.CASum
	// OwnCAFile returns the path of the roots of one tunnel, for a target that has some of its own.
	OwnCAFile func(tunnel string) string
	// DNSSuffix completes the host name of file systems for which the table has no DNS name; "" when
	// the region is unknown.
	DNSSuffix  string
	Region     string // of the node; "" when unknown
	ServerPort uint16 // of mount targets
	Reserved   []int  // local ports that no tunnel may have
}

// Input is what a plan depends on.
type Input struct {
	Table    ports.Table
	Location Location
	Routes   Routes
	States   map[string]State // by tunnel
	Files    []string         // tunnels that have a specification
	// Standby are the tunnels that listen and are probed on another address, because another pod has
	// their port.
	Standby map[string]bool
	// Used are the tunnels that have clients, or of which that is unknown.
	Used         map[string]bool
	Specs        map[string][]byte      // the last specifications, by tunnel
	Certificates map[string]Certificate // by tunnel
	Settings     Settings
	Now          time.Time
}

// Plan is the desired state of a node's tunnels.
type Plan struct {
	Tunnels             []Tunnel // by name
	Unusable            []UnusableTarget
	AwaitingCertificate []string // tunnels whose client certificate is being made
	Remove              []string // tunnels
	States              map[string]State
}

// Tunnel is a tunnel that can run.
type Tunnel struct {
	tunnelspec.Tunnel

	Port         int           // that of the table, also on standby
	MountTargets []MountTarget // nearest first
	Active       MountTarget   // the one that stunnel tries first
	Standby      bool
	Identity     clientcert.Identity // what its certificate should contain; the zero Identity if it needs none
	Certificate  Certificate         // without a file for none
	Authorities  string              // content of CAFile, in PEM, where that is the target's own and known; else ""
	Spec         []byte              // the specification in the supervisor's format
}

// HasNearer reports whether a mount target is nearer than the active one.
func (t Tunnel) HasNearer() bool { return t.Active.Distance > t.MountTargets[0].Distance }

// Reason is why a target is unusable, as in metrics and events. docs/reference/reasons.md is generated from the comments
// of its values: after the first sentence they say what to do.
type Reason string

// Reasons.
const (
	NoAddress         Reason = "NoAddress"         // the table has no address of a mount target. Create mount targets
	BadPort           Reason = "BadPort"           // the port is not allowed for tunnels, or belongs to another target. Correct the table, or delete its ConfigMap to have it rebuilt
	NoHostName        Reason = "NoHostName"        // the DNS name to verify the server's certificate with is unknown. Write dns_name in the pinned table, or set the agent's --aws-region
	ClientCertificate Reason = "ClientCertificate" // it has iam or is an access point, and its client certificate cannot be made. The message says what is missing: usually credentials or the region
	BadValue          Reason = "BadValue"          // a value cannot be written into stunnel's configuration. Correct the table
	Missing           Reason = "Missing"           // the table no longer has the target; its tunnel stays while volumes are mounted, in this pod only. Pin it or have it discovered again; or delete the pods that use its volumes, never the agent's
)

// awaitingCertificate is a reason inside of this package only: the target is not reported.
const awaitingCertificate Reason = "Pending"

// UnusableTarget is a target for which no tunnel can be planned from the table. If it has a tunnel, that one
// stays as it is and, while it is used, is one of Plan.Tunnels.
type UnusableTarget struct {
	Name    string // of the tunnel
	Port    int
	Reason  Reason
	Message string
}

// NewPlan plans the tunnels of a node.
//
//	target                  before                        after
//	new                     in the table, no file         a file; on standby if another pod has the port
//	unchanged               in the table, a file          the same file
//	no longer on standby    a file for standby            a file for the port of the table
//	unusable                in the table                  the file, if any, stays; reported
//	unusable and used       in the table, a file          the same, and planned from the file
//	without a certificate   it needs one, and has none    the same, not reported
//	IAM turned on           runs without IAM              unchanged until there is a certificate
//	missing                 not in the table, a file      the file stays until the grace period ends or
//	                                                      another target has the port
//	missing and used        not in the table, a file      the file stays until another target has the
//	                                                      port; reported, and planned from the file
//
// Equal inputs give equal plans, and no target affects the tunnel of another.
func NewPlan(in Input) Plan {
	b := builder{in: in, owners: portOwners(in.Table, in.States), plan: Plan{States: map[string]State{}}}
	for _, key := range in.Table.Keys() {
		b.add(key)
	}
	b.addMissing()
	slices.SortFunc(b.plan.Tunnels, func(x, y Tunnel) int { return strings.Compare(x.Name, y.Name) })
	return b.plan
}

// Name is the tunnel's name in files, logs and metrics.
func Name(key ports.Key) string {
	if key.AccessPoint == "" {
		return key.FileSystem
	}
	return key.FileSystem + "." + key.AccessPoint
}

// portOwners assigns each port to one target: to the one that had the port before, else to the first
// by key.
func portOwners(table ports.Table, states map[string]State) map[int]string {
	owners := map[int]string{}
	for _, key := range table.Keys() {
		port, _ := table.Port(key)
		name := Name(key)
		if _, taken := owners[port]; !taken || states[name].Port == port && states[name].MissingSince.IsZero() {
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
	state := b.in.States[name]
	state.MissingSince = time.Time{}
	port, _ := b.in.Table.Port(key)
	tunnel, unusable := b.tunnel(key, port, &state)
	if unusable.Reason != "" {
		unusable.Name, unusable.Port = name, port
		if unusable.Reason == awaitingCertificate {
			b.plan.AwaitingCertificate = append(b.plan.AwaitingCertificate, name)
		} else {
			b.plan.Unusable = append(b.plan.Unusable, unusable)
		}
		if _, known := b.in.States[name]; known || slices.Contains(b.in.Files, name) {
			b.plan.States[name] = state
			b.keep(name, state)
		}
		return
	}
	b.plan.Tunnels = append(b.plan.Tunnels, tunnel)
	b.plan.States[name] = state
}

// tunnel changes the state only when the target is usable.
func (b *builder) tunnel(key ports.Key, port int, state *State) (Tunnel, UnusableTarget) {
	target := b.in.Table.Targets[key.FileSystem]
	t := Tunnel{Port: port, MountTargets: byDistance(target, b.in.Location, b.in.Routes)}
	t.Name, t.CheckHost, t.Lanes = Name(key), b.host(key.FileSystem, target), target.Lanes
	t.CAFile, t.CASum = b.in.Settings.CAFile, b.in.Settings.CASum
	if own := target.CACertificates; own != "" {
		t.Authorities, t.CAFile, t.CASum = own, b.in.Settings.OwnCAFile(t.Name), tunnelspec.Generation([]byte(own))
	}
	unusable := b.check(t)
	if unusable.Reason == "" {
		t.Identity = identityOf(key, target, b.in.Settings)
		t.Certificate, unusable = b.certificate(t, *state)
	}
	if unusable.Reason != "" {
		return Tunnel{}, unusable
	}
	t, err := b.complete(t, b.in.Standby[t.Name], state)
	if err != nil {
		return Tunnel{}, UnusableTarget{Reason: BadValue, Message: err.Error()}
	}
	return t, UnusableTarget{}
}

// complete sets what follows from the state. It changes the state only if the specification is valid.
func (b *builder) complete(t Tunnel, standby bool, state *State) (Tunnel, error) {
	next := *state
	next.Port, next.Standby, next.WithoutCertificate, next.Identity = t.Port, standby, t.Certificate.File == "", t.Identity
	order := next.connectOrder(t.MountTargets)
	t.Active, t.Standby = order[0], standby
	t.Accept, t.Connect, t.Restart = acceptAddress(t.Port, standby), b.servers(order), next.RestartSerial
	t.Cert, t.CertSum, t.Key = t.Certificate.File, t.Certificate.Sum, t.Certificate.Key
	var err error
	if t.Spec, err = tunnelspec.Encode(t.Tunnel); err != nil {
		return Tunnel{}, err
	}
	*state = next
	return t, nil
}

func acceptAddress(port int, standby bool) netip.AddrPort {
	address := wellknown.LoopbackAddress
	if standby {
		address = wellknown.StandbyAddress
	}
	return netip.AddrPortFrom(netip.MustParseAddr(address), uint16(port))
}

// host returns the name that the server's certificate must have; "" when unknown. Only the names of
// file systems of EFS follow from their IDs.
func (b *builder) host(id string, target ports.Target) string {
	if target.DNSName != "" || b.in.Settings.DNSSuffix == "" || efs.CheckFileSystemID(id) != nil {
		return target.DNSName
	}
	return id + "." + b.in.Settings.DNSSuffix
}

// check returns why a target is unusable, without a reason if it is usable.
func (b *builder) check(t Tunnel) UnusableTarget {
	switch {
	case t.Port < wellknown.MinPort || t.Port > wellknown.MaxPort || t.Port == wellknown.NFSPort ||
		slices.Contains(b.in.Settings.Reserved, t.Port):
		return UnusableTarget{Reason: BadPort, Message: fmt.Sprintf("port %d is not allowed for tunnels", t.Port)}
	case b.owners[t.Port] != t.Name:
		return UnusableTarget{Reason: BadPort, Message: fmt.Sprintf("port %d belongs to %s", t.Port, b.owners[t.Port])}
	case len(t.MountTargets) == 0:
		return UnusableTarget{Reason: NoAddress, Message: "the table has no address of a mount target"}
	case t.CheckHost == "":
		return UnusableTarget{Reason: NoHostName, Message: "the table has no DNS name to verify the server's certificate with; " +
			"let the manager write dns_name, or set --aws-region"}
	}
	return UnusableTarget{}
}

func (b *builder) servers(order []MountTarget) []netip.AddrPort {
	var servers []netip.AddrPort
	for _, t := range order[:min(len(order), tunnelspec.MaxConnect)] {
		servers = append(servers, netip.AddrPortFrom(t.Address, b.in.Settings.ServerPort))
	}
	return servers
}

// addMissing plans tunnels whose targets are not in the table any more.
func (b *builder) addMissing() {
	for _, name := range sets.List(b.in.missing()) {
		state := b.in.States[name]
		state.MissingSince = cmp.Or(state.MissingSince, b.in.Now)
		used := b.in.Used[name]
		if used {
			// In whole minutes, because the agent stores each change of the state.
			state.MissingSince = b.in.Now.Truncate(time.Minute)
		}
		_, reassigned := b.owners[state.Port]
		if reassigned || b.in.Now.Sub(state.MissingSince) >= RemovalGrace {
			b.plan.Remove = append(b.plan.Remove, name)
			continue
		}
		if used {
			b.plan.Unusable = append(b.plan.Unusable, UnusableTarget{Name: name, Port: state.Port, Reason: Missing,
				Message: "the table no longer has it; its tunnel stays while volumes are mounted"})
		}
		b.plan.States[name] = state
		b.keep(name, state)
	}
}

// missing are the tunnels whose targets are not in the table.
func (in Input) missing() sets.Set[string] {
	missing := sets.KeySet(in.States).Insert(in.Files...)
	for _, key := range in.Table.Keys() {
		missing.Delete(Name(key))
	}
	return missing
}

// keep plans the tunnel of a missing or unusable target from its last specification for as long as it is used.
// So it is probed and fails over like any other, among the mount targets that it had, and its client
// certificate is renewed. Nothing else changes.
func (b *builder) keep(name string, state State) {
	last, err := tunnelspec.Decode(b.in.Specs[name])
	owner, owned := b.owners[state.Port]
	if err != nil || !b.in.Used[name] || state.Port == 0 || owned && owner != name {
		return
	}
	t := Tunnel{Tunnel: last, Port: state.Port, Identity: state.Identity, Certificate: b.lastCertificate(last)}
	if t.Name = name; last.CAFile != b.in.Settings.OwnCAFile(name) {
		t.CAFile, t.CASum = b.in.Settings.CAFile, b.in.Settings.CASum
	}
	for _, server := range last.Connect {
		t.MountTargets = append(t.MountTargets, MountTarget{Address: server.Addr()})
	}
	if t, err = b.complete(t, state.Standby && b.in.Standby[name], &state); err == nil {
		b.plan.Tunnels, b.plan.States[name] = append(b.plan.Tunnels, t), state
	}
}

// lastCertificate returns the certificate of a specification, as it was renewed since.
func (b *builder) lastCertificate(last tunnelspec.Tunnel) Certificate {
	if held := b.in.Certificates[last.Name]; held.Sum != "" && held.File == last.Cert {
		return held
	}
	return Certificate{File: last.Cert, Key: last.Key, Sum: last.CertSum}
}
