package clientcert

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"
	"time"
)

// Words of AWS's Signature Version 4.
const (
	algorithm   = "AWS4-HMAC-SHA256"
	service     = "elasticfilesystem"
	request     = "aws4_request"
	timeForm    = "20060102T150405Z"
	dateForm    = "20060102"
	lifeSeconds = "86400" // of the signature; EFS asks for no other
)

// signature signs the key for EFS's action Connect, in hexadecimal.
func (r Request) signature(keyID string) string {
	key := r.Credentials.signingKey(r.Now, r.Region)
	return hex.EncodeToString(mac(key, r.stringToSign(r.canonical(keyID))))
}

// canonical is the request that is signed. It lacks the empty line between the headers and their
// names that Signature Version 4 has everywhere else, so that no SDK can make it.
func (r Request) canonical(keyID string) string {
	empty := sha256.Sum256(nil)
	return strings.Join([]string{
		"GET",
		"/",
		r.query(keyID),
		"host:" + r.FileSystem,
		"host",
		hex.EncodeToString(empty[:]),
	}, "\n")
}

func (r Request) query(keyID string) string {
	q := url.Values{}
	q.Set("Action", "Connect")
	q.Set("PublicKeyHash", keyID)
	q.Set("X-Amz-Algorithm", algorithm)
	q.Set("X-Amz-Credential", r.Credentials.AccessKeyID+"/"+r.scope())
	q.Set("X-Amz-Date", r.Now.UTC().Format(timeForm))
	q.Set("X-Amz-Expires", lifeSeconds)
	if r.Credentials.SessionToken != "" {
		q.Set("X-Amz-Security-Token", r.Credentials.SessionToken)
	}
	q.Set("X-Amz-SignedHeaders", "host")
	return q.Encode() // sorted by name, as it must be
}

// scope is where and when the signature counts.
func (r Request) scope() string {
	return strings.Join([]string{r.Now.UTC().Format(dateForm), r.Region, service, request}, "/")
}

func (r Request) stringToSign(canonical string) string {
	sum := sha256.Sum256([]byte(canonical))
	return strings.Join([]string{algorithm, r.Now.UTC().Format(timeForm), r.scope(), hex.EncodeToString(sum[:])}, "\n")
}

// signingKey is derived from the secret, so that one that is found out serves for a day only.
func (c Credentials) signingKey(at time.Time, region string) []byte {
	key := mac([]byte("AWS4"+c.SecretAccessKey), at.UTC().Format(dateForm))
	for _, part := range []string{region, service, request} {
		key = mac(key, part)
	}
	return key
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text)) // which never fails
	return h.Sum(nil)
}
