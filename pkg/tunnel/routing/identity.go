package routing

import (
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/ports"
)

// Identity is what a tunnel's client certificate has to say.
type Identity struct {
	FileSystem  string
	AccessPoint string // "" for the file system itself
	IAM         bool   // it proves the node's IAM identity
	Region      string // for which it is signed; only with IAM
}

// Certificate is the client certificate of a tunnel that the node holds, or why it holds none.
type Certificate struct {
	Identity Identity
	File     string
	Sum      string // the SHA-256 of the file's bytes in hexadecimal; "" while there is none
	// Until is when servers cease to take it.
	Until time.Time
	// Problem is why there is none, or no newer one; "" if there is nothing wrong.
	Problem string
}

// Identities are what the tunnels of a table need certificates for. Those that cannot be signed
// because no region is known are left out.
func Identities(table ports.Table, s Settings) map[string]Identity {
	all := map[string]Identity{}
	for _, key := range table.Keys() {
		identity, needed := identityOf(key, table.Targets[key.FileSystem], s)
		if needed && (identity.Region != "" || !identity.IAM) {
			all[Name(key)] = identity
		}
	}
	return all
}

// identityOf: the server tells access points by the certificate only, so that without one the
// tunnel would lead to the whole file system.
func identityOf(key ports.Key, target ports.Target, s Settings) (identity Identity, needed bool) {
	identity = Identity{FileSystem: key.FileSystem, AccessPoint: key.AccessPoint, IAM: target.IAM}
	if key.AccessPoint != "" {
		identity.IAM = target.AccessPoints[key.AccessPoint].IAM
	}
	if identity.IAM {
		identity.Region = regionOf(target.DNSName, s.Region)
	}
	return identity, identity.IAM || key.AccessPoint != ""
}

// regionOf reads names of EFS, which are <id>.efs.<region>.<suffix>, perhaps with a zone before.
// Another server's is taken to be in the node's region.
func regionOf(dnsName, own string) string {
	labels := strings.Split(dnsName, ".")
	for i, label := range labels[:len(labels)-1] {
		if label == "efs" && i > 0 {
			return labels[i+1]
		}
	}
	return own
}

// certificate is the one to show, the zero Certificate for a tunnel that shows none.
func (b *builder) certificate(t Tunnel, target ports.Target) (Certificate, Trouble) {
	identity, needed := identityOf(t.Key, target, b.in.Settings)
	if !needed {
		return Certificate{}, Trouble{}
	}
	if identity.IAM && identity.Region == "" {
		return Certificate{}, Trouble{Reason: ClientCertificate, Message: "the region is not known for which its client certificate " +
			"must be signed; let the manager write dns_name, or set --aws-region"}
	}
	held := b.in.Certificates[t.Name]
	switch {
	case held.Identity == identity && held.Sum != "":
		return held, Trouble{}
	case held.Identity == identity && held.Problem != "":
		return Certificate{}, Trouble{Reason: ClientCertificate, Message: "its client certificate cannot be made: " + held.Problem}
	}
	return Certificate{}, Trouble{Reason: pending}
}
