package mountauth

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/url"
	"strings"
	"time"
)

const (
	algorithm  = "AWS4-HMAC-SHA256"
	service    = "elasticfilesystem"
	scopeEnd   = "aws4_request"
	timeFormat = "20060102T150405Z"
	dateFormat = "20060102"

	// maxSkew is the lead that a client's clock may have over ours, as with AWS.
	maxSkew = 5 * time.Minute
	// maxAge is the X-Amz-Expires of every request to connect: 86400 seconds.
	maxAge = 24 * time.Hour
)

// connectRequest is the request that a client signs for a connection. It is never sent, because both
// sides can compute it.
type connectRequest struct {
	fileSystemID  string
	publicKeyHash string // 40 hex digits
	region        string
	accessKeyID   string
	sessionToken  string // "" = long-term credentials
	signedAt      time.Time
}

// checkSignature requires the signature of the request with the lab's key, made at an allowed time.
func (v Verifier) checkSignature(r connectRequest, signature []byte, now time.Time) error {
	if r.accessKeyID != v.Key.AccessKeyID {
		return Refuse(IAMKey, "access key %q is unknown", r.accessKeyID)
	}
	age := now.Sub(r.signedAt)
	if age < -maxSkew || age > maxAge {
		return Refuse(IAMDate, "signed at %s, now it is %s; want at most %s ahead and %s ago",
			r.signedAt.Format(time.RFC3339), now.UTC().Format(time.RFC3339), maxSkew, maxAge)
	}
	want := r.sign(v.Key.SecretAccessKey)
	if subtle.ConstantTimeCompare([]byte(want), signature) != 1 {
		return Refuse(IAMSignature, "it is not the signature of access key %s for file system %s in %s at %s with this public key and session token",
			r.accessKeyID, r.fileSystemID, r.region, r.signedAt.Format(time.RFC3339))
	}
	return nil
}

// sign computes the signature of Signature Version 4 in hex.
func (r connectRequest) sign(secret string) string {
	return signString(secret, r.region, r.signedAt, r.stringToSign())
}

func (r connectRequest) stringToSign() string {
	return strings.Join([]string{algorithm, r.signedAt.UTC().Format(timeFormat), r.scope(), hexSHA256(r.canonical())}, "\n")
}

func (r connectRequest) scope() string {
	return strings.Join([]string{r.signedAt.UTC().Format(dateFormat), r.region, service, scopeEnd}, "/")
}

// canonical differs from Signature Version 4: no empty line separates the headers from their names.
func (r connectRequest) canonical() string {
	query := url.Values{
		"Action":              {"Connect"},
		"PublicKeyHash":       {r.publicKeyHash},
		"X-Amz-Algorithm":     {algorithm},
		"X-Amz-Credential":    {r.accessKeyID + "/" + r.scope()},
		"X-Amz-Date":          {r.signedAt.UTC().Format(timeFormat)},
		"X-Amz-Expires":       {"86400"},
		"X-Amz-SignedHeaders": {"host"},
	}
	if r.sessionToken != "" {
		query.Set("X-Amz-Security-Token", r.sessionToken)
	}
	return strings.Join([]string{"GET", "/", query.Encode(), "host:" + r.fileSystemID, "host", hexSHA256("")}, "\n")
}

func signString(secret, region string, at time.Time, text string) string {
	key := []byte("AWS4" + secret)
	for _, part := range []string{at.UTC().Format(dateFormat), region, service, scopeEnd, text} {
		key = hmacSHA256(key, part)
	}
	return hex.EncodeToString(key)
}

func hmacSHA256(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

func hexSHA256(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
