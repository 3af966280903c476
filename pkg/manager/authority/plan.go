// Package authority makes the certificates of NFS servers, and of the agents as their clients, and renews each before it
// ends. Its authority is trusted by nothing else.
package authority

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"time"
)

// Times of certificates. Each is renewed when less than a third of its time is left.
const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
	skew          = time.Hour // that clocks of servers and agents may be behind
	// settleTime is the age at which an authority signs renewals: by then all agents and servers trust it.
	settleTime = time.Hour
)

// pair is the content of a Secret with a certificate.
type pair struct {
	certificate, key []byte // in PEM
	authorities      []byte // that are trusted, in PEM
}

type leaf struct {
	secret string // the name of its Secret
	name   string // the common name
	dns    string // the name of a server; "" for a client
	usage  x509.ExtKeyUsage
}

type state struct {
	authority pair
	leaves    map[leaf]pair
}

// renewed returns the state as it should be. Equal times and states that are in order give equal states.
//
//	authority               certificate                    becomes
//	missing                 any                            both new
//	less than a third left  valid, also if it is due       a new authority beside the old one; the certificate as it is
//	new                     valid, also if it is due       as it is, until all trust the authority
//	in order                a third or less left           a new certificate
//	in order                of another authority or name   a new certificate
func renewed(before state, now time.Time) (state, error) {
	after := state{leaves: map[leaf]pair{}}
	authority, err := renewedAuthority(before.authority, now)
	if err != nil {
		return state{}, err
	}
	after.authority = authority.pair
	for of, p := range before.leaves {
		if !authority.keeps(of, p, now) {
			if p, err = authority.issue(of, now); err != nil {
				return state{}, err
			}
		}
		p.authorities = authority.authorities
		after.leaves[of] = p
	}
	return after, nil
}

type signer struct {
	pair
	tls.Certificate
	roots *x509.CertPool // of authorities
}

func renewedAuthority(before pair, now time.Time) (signer, error) {
	if !before.isFresh(now) {
		next, err := issue(&x509.Certificate{
			Subject:  pkix.Name{CommonName: "efs-stunnel NFS servers " + now.UTC().Format(time.RFC3339)},
			NotAfter: now.Add(authorityLife), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		}, nil, now)
		if err != nil {
			return signer{}, err
		}
		next.authorities = before.authorities
		before = next
	}
	s := signer{pair: before, roots: x509.NewCertPool()}
	s.authorities = s.trusted(now)
	s.roots.AppendCertsFromPEM(s.authorities)
	var err error
	s.Certificate, err = tls.X509KeyPair(s.certificate, s.key)
	return s, err
}

// trusted returns the authority's certificate, and those before it that have not ended.
func (p pair) trusted(now time.Time) (all []byte) {
	for block, rest := pem.Decode(slices.Concat(p.certificate, p.authorities)); block != nil; block, rest = pem.Decode(rest) {
		text := pem.EncodeToMemory(block)
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && now.Before(c.NotAfter) && !bytes.Contains(all, text) {
			all = append(all, text...)
		}
	}
	return all
}

// isFresh reports whether a third or more is left of a certificate's time.
func (p pair) isFresh(now time.Time) bool {
	parsed, err := tls.X509KeyPair(p.certificate, p.key)
	if err != nil {
		return false
	}
	left, whole := parsed.Leaf.NotAfter.Sub(now), parsed.Leaf.NotAfter.Sub(parsed.Leaf.NotBefore)
	return left >= whole/3
}

// keeps reports whether a certificate stays. One that servers and agents accept waits for an authority that is new.
func (s signer) keeps(of leaf, p pair, now time.Time) bool {
	parsed, err := tls.X509KeyPair(p.certificate, p.key)
	if err != nil {
		return false
	}
	_, err = parsed.Leaf.Verify(x509.VerifyOptions{Roots: s.roots, DNSName: of.dns, KeyUsages: []x509.ExtKeyUsage{of.usage}, CurrentTime: now})
	isSettled := now.Sub(s.Leaf.NotBefore) >= skew+settleTime
	return err == nil && (p.isFresh(now) || !isSettled)
}

func (s signer) issue(of leaf, now time.Time) (pair, error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: of.name}, NotAfter: now.Add(leafLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{of.usage},
	}
	if of.dns != "" {
		template.DNSNames = []string{of.dns}
	}
	return issue(template, &s.Certificate, now)
}

// issue signs a certificate of a new key, by itself without an authority. The curve is one that FIPS allows.
func issue(template *x509.Certificate, by *tls.Certificate, now time.Time) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("making a key: %w", err)
	}
	if by == nil {
		by = &tls.Certificate{Leaf: template, PrivateKey: key}
	}
	template.NotBefore = now.Add(-skew)
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return pair{}, fmt.Errorf("making a serial number: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.Leaf, key.Public(), by.PrivateKey)
	if err != nil {
		return pair{}, fmt.Errorf("signing the certificate of %s: %w", template.Subject, err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return pair{}, fmt.Errorf("encoding a key: %w", err)
	}
	return pair{
		certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}),
	}, nil
}
