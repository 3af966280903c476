package clientcert

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Constants of AWS's Signature Version 4.
const (
	algorithm  = "AWS4-HMAC-SHA256"
	service    = "elasticfilesystem"
	request    = "aws4_request"
	timeFormat = "20060102T150405Z"
	dateFormat = "20060102"
	lifetime   = "86400" // of the signature in seconds, as EFS expects it
)

// signature signs EFS's action Connect for a key, in hexadecimal.
func (r Request) signature(keyID string) string {
	key := r.Credentials.signingKey(r.Now, r.Region)
	return hex.EncodeToString(mac(key, r.stringToSign(r.canonicalRequest(keyID))))
}

// canonicalRequest is the request that is signed. EFS's has no empty line between the headers and
// their names, unlike all others of Signature Version 4, so the SDK cannot sign it.
func (r Request) canonicalRequest(keyID string) string {
	return strings.Join([]string{
		"GET",
		"/",
		r.query(keyID),
		"host:" + r.FileSystem,
		"host",
		fmt.Sprintf("%x", sha256.Sum256(nil)),
	}, "\n")
}

func (r Request) query(keyID string) string {
	q := url.Values{}
	q.Set("Action", "Connect")
	q.Set("PublicKeyHash", keyID)
	q.Set("X-Amz-Algorithm", algorithm)
	q.Set("X-Amz-Credential", r.Credentials.AccessKeyID+"/"+r.scope())
	q.Set("X-Amz-Date", r.Now.UTC().Format(timeFormat))
	q.Set("X-Amz-Expires", lifetime)
	if r.Credentials.SessionToken != "" {
		q.Set("X-Amz-Security-Token", r.Credentials.SessionToken)
	}
	q.Set("X-Amz-SignedHeaders", "host")
	return q.Encode() // sorted by name, as it must be
}

// scope is the credential scope: date, region and service of the signature.
func (r Request) scope() string {
	return strings.Join([]string{r.Now.UTC().Format(dateFormat), r.Region, service, request}, "/")
}

func (r Request) stringToSign(canonical string) string {
	hash := fmt.Sprintf("%x", sha256.Sum256([]byte(canonical)))
	return strings.Join([]string{algorithm, r.Now.UTC().Format(timeFormat), r.scope(), hash}, "\n")
}

// signingKey is derived from the secret access key for one day, region and service.
func (c Credentials) signingKey(at time.Time, region string) []byte {
	key := mac([]byte("AWS4"+c.SecretAccessKey), at.UTC().Format(dateFormat))
	for _, part := range []string{region, service, request} {
		key = mac(key, part)
	}
	return key
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text)) // never fails
	return h.Sum(nil)
}
