package routing

import (
	"slices"
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

// SameTarget says whether two identities lead to the same, and differ only in how the node proves
// itself.
func (i Identity) SameTarget(other Identity) bool {
	return i.FileSystem == other.FileSystem && i.AccessPoint == other.AccessPoint
}

// Certificate is the client certificate of a tunnel that the node holds, or why it holds none.
type Certificate struct {
	// Identity is what it says: what it said before, while it cannot be what it should.
	Identity Identity
	File     string
	Sum      string // the SHA-256 of the file's bytes in hexadecimal; "" while there is none
	// Until is when servers cease to take it.
	Until time.Time
	// Problem is why there is none, or no newer one; "" if there is nothing wrong.
	Problem string
}

// Identities are what the tunnels of a table need certificates for.
func Identities(table ports.Table, s Settings) map[string]Identity {
	all := map[string]Identity{}
	for _, key := range table.Keys() {
		identity, needed := identityOf(key, table.Targets[key.FileSystem], s)
		if needed {
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

// certificate is the one to show, the zero Certificate for a tunnel that shows none. A tunnel whose
// identity was asked for later goes on as it was until there is a certificate with it: whoever
// uses it must not lose it to somebody else's wish.
func (b *builder) certificate(t Tunnel, memory Memory) (Certificate, Trouble) {
	if t.Identity == (Identity{}) {
		return Certificate{}, Trouble{}
	}
	held := b.in.Certificates[t.Name]
	switch {
	case held.Sum != "" && held.Identity.SameTarget(t.Identity):
		return held, Trouble{}
	case memory.Bare && t.Identity.AccessPoint == "" && slices.Contains(b.in.Files, t.Name):
		return Certificate{Problem: held.Problem}, Trouble{}
	case t.Identity.IAM && t.Identity.Region == "":
		return Certificate{}, Trouble{Reason: ClientCertificate, Message: "the region is not known for which its client certificate " +
			"must be signed; let the manager write dns_name, or set --aws-region"}
	case held.Identity == t.Identity && held.Problem != "":
		return Certificate{}, Trouble{Reason: ClientCertificate, Message: "its client certificate cannot be made: " + held.Problem}
	}
	return Certificate{}, Trouble{Reason: pending}
}
