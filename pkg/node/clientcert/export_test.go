package clientcert

import (
	"encoding/hex"
	"time"
)

// CanonicalRequest is what is signed for a key.
func (r Request) CanonicalRequest(keyID string) string { return r.canonicalRequest(keyID) }

// Signature is the signature of a key.
func (r Request) Signature(keyID string) string { return r.signature(keyID) }

// Sign signs any text.
func (c Credentials) Sign(text string, at time.Time, region string) string {
	return hex.EncodeToString(mac(c.signingKey(at, region), text))
}
