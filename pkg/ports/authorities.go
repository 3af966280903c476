package ports

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Limits of a target's own certificate authorities: the table has MaxTableBytes for all targets.
const (
	maxAuthorityBytes = 16 << 10
	maxAuthorities    = 8
)

const authorityWarning = 30 * 24 * time.Hour

// Authorities parses certificates in PEM. Anything else in the text is an error, so that a key which was
// pasted by mistake does not end in the table and on all nodes.
func Authorities(text string) (all []*x509.Certificate, err error) {
	if len(text) > maxAuthorityBytes {
		return nil, fmt.Errorf("%d bytes; want at most %d", len(text), maxAuthorityBytes)
	}
	for rest := bytes.TrimSpace([]byte(text)); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		block, after := pem.Decode(rest)
		if block == nil || !bytes.HasPrefix(rest, []byte("-----BEGIN CERTIFICATE-----")) || len(block.Headers) > 0 {
			return nil, fmt.Errorf("something else after %d certificates; want certificates in PEM only", len(all))
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(all)+1, err)
		}
		all, rest = append(all, certificate), after
	}
	if len(all) == 0 || len(all) > maxAuthorities {
		return nil, fmt.Errorf("%d certificates; want 1 to %d", len(all), maxAuthorities)
	}
	return all, nil
}

// authorities is the check of ca_certificates.
func authorities(path string, v *yaml.Node) error {
	if v.Kind != yaml.ScalarNode || !isText(v) {
		return want(path, v, "certificates in PEM")
	}
	if _, err := Authorities(v.Value); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// reportAuthorities reports targets whose own authorities have ended, or will soon. Of several, as while one follows
// another, the one that ends last counts.
func (p *planner) reportAuthorities() {
	for id, target := range p.table.Targets {
		all, err := Authorities(target.CACertificates)
		if err != nil {
			continue // it has none
		}
		last := slices.MaxFunc(all, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
		if p.in.Now.Add(authorityWarning).After(last.NotAfter) {
			p.report(Event{Reason: wellknown.EventAuthorityEnds, FileSystem: id}, "its certificate authority %.200q is valid until %s only; nodes refuse the server's certificates afterwards",
				last.Subject, last.NotAfter.UTC().Format(time.RFC3339))
		}
	}
}
