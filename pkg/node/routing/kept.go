package routing

import (
	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
)

// keep plans the tunnel of a missing or unusable target from its last specification for as long as it is used.
// So it is probed and fails over like any other, among the mount targets that it had, and its client
// certificate is renewed. Nothing else changes.
func (b *builder) keep(name string, state State) {
	last, err := tunnelspec.Decode(b.in.Specs[name])
	owner, owned := b.owners[state.Port]
	if err != nil || !b.in.Used[name] || state.Port == 0 || owned && owner != name {
		return
	}
	t := Tunnel{Name: name, Port: state.Port, Host: last.CheckHost, Identity: state.Identity, Certificate: b.lastCertificate(last)}
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
	return Certificate{File: last.Cert, Sum: last.CertSum}
}
