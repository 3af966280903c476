package routing

import (
	"slices"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/ports"
)

// Identity is what a tunnel's client certificate must contain.
type Identity struct {
	FileSystem  string `json:"fileSystem"`
	AccessPoint string `json:"accessPoint,omitempty"` // "" for the file system itself
	IAM         bool   `json:"iam,omitempty"`         // signed with the node's IAM credentials
	Region      string `json:"region,omitempty"`      // that the signature is for; only with IAM
}

// SameTarget reports whether two identities are for the same file system and access point.
func (i Identity) SameTarget(other Identity) bool {
	return i.FileSystem == other.FileSystem && i.AccessPoint == other.AccessPoint
}

// Certificate is the client certificate of a tunnel, or the reason why there is none.
type Certificate struct {
	Identity Identity // that of the certificate: an earlier one, while none can be made with the current
	File     string
	Sum      string    // the SHA-256 of the file in hexadecimal; "" while there is none
	Until    time.Time // when servers stop accepting it
	Problem  string    // why it cannot be made or renewed; "" without a problem
}

// Identities returns the identities of those tunnels that need a certificate: of the table's, and of used ones
// that left it.
func Identities(in Input) map[string]Identity {
	all := map[string]Identity{}
	for _, key := range in.Table.Keys() {
		identity, needed := identityOf(key, in.Table.Targets[key.FileSystem], in.Settings)
		if needed {
			all[Name(key)] = identity
		}
	}
	for name := range in.missing() {
		if identity := in.States[name].Identity; in.Used[name] && identity != (Identity{}) {
			all[name] = identity
		}
	}
	return all
}

// identityOf returns a tunnel's identity. An access point needs a certificate also without IAM: only
// the certificate names the access point, and without it the server exports the whole file system.
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

// regionOf returns the region in a DNS name of EFS, [<zone>.]<id>.efs.<region>.<suffix>, and the
// node's region for other names.
func regionOf(dnsName, nodeRegion string) string {
	labels := strings.Split(dnsName, ".")
	for i, label := range labels[:len(labels)-1] {
		if label == "efs" && i > 0 {
			return labels[i+1]
		}
	}
	return nodeRegion
}

// certificate returns the certificate of a tunnel, the zero Certificate if it needs none. When IAM is
// turned on for a tunnel, the tunnel continues without it until there is a certificate: volumes that
// are mounted must not depend on the credentials.
func (b *builder) certificate(t Tunnel, state State) (Certificate, UnusableTarget) {
	if t.Identity == (Identity{}) {
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
		return Certificate{}, UnusableTarget{Reason: ClientCertificate, Message: "its client certificate cannot be made: " + held.Problem}
	}
	return Certificate{}, UnusableTarget{Reason: awaitingCertificate}
}
