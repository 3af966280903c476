package efsapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sigv4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

const (
	service    = "elasticfilesystem"
	dateFormat = "20060102T150405Z"
	maxBody    = 1 << 20
)

// Key is the one pair of credentials that the API accepts.
type Key struct{ AccessKeyID, SecretAccessKey string }

// authorization is the parsed header of Signature Version 4.
type authorization struct {
	accessKeyID, date, region, service string
	signedHeaders                      []string
	signature                          string
}

func parseAuthorization(header string) (authorization, bool) {
	form := regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=([^/,]+)/(\d{8})/([^/,]+)/([^/,]+)/aws4_request, ?SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})$`)
	m := form.FindStringSubmatch(header)
	if m == nil {
		return authorization{}, false
	}
	return authorization{m[1], m[2], m[3], m[4], strings.Split(m[5], ";"), m[6]}, true
}

func forbidden(code, message string) *apiError { return newError(http.StatusForbidden, code, message) }

// authenticate checks the request's signature as AWS does.
func (s *Server) authenticate(r *http.Request) *apiError {
	header := r.Header.Get("Authorization")
	if header == "" {
		return forbidden("MissingAuthenticationTokenException", "Missing Authentication Token")
	}
	auth, ok := parseAuthorization(header)
	signedAt, err := time.Parse(dateFormat, r.Header.Get("X-Amz-Date"))
	if !ok || err != nil || !strings.HasPrefix(r.Header.Get("X-Amz-Date"), auth.date) {
		return newError(http.StatusBadRequest, "IncompleteSignatureException", "Authorization header is not a complete AWS4-HMAC-SHA256 signature with X-Amz-Date")
	}
	switch {
	case auth.accessKeyID != s.Key.AccessKeyID:
		return forbidden("UnrecognizedClientException", "The security token included in the request is invalid.")
	case auth.region != s.Region:
		return forbidden("InvalidSignatureException", "Credential should be scoped to a valid region, not '"+auth.region+"'.")
	case auth.service != service:
		return forbidden("InvalidSignatureException", "Credential should be scoped to correct service: '"+service+"'.")
	case !slices.Contains(auth.signedHeaders, "host"):
		return forbidden("InvalidSignatureException", "'Host' must be a 'SignedHeader' in the AWS Authorization.")
	}
	want, err := s.sign(r, auth, signedAt)
	if err != nil {
		return badRequest(err.Error())
	}
	if subtle.ConstantTimeCompare([]byte(want), []byte(auth.signature)) != 1 {
		return forbidden("InvalidSignatureException",
			"The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and signing method.")
	}
	return nil
}

// sign computes the signature that the request should have: the SDK's own signer signs a copy with
// only the headers that the client signed.
func (s *Server) sign(r *http.Request, auth authorization, signedAt time.Time) (string, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return "", err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	signed := r.Clone(context.WithoutCancel(r.Context()))
	signed.URL.Host, signed.Header = r.Host, http.Header{}
	signed.ContentLength = 0
	for _, name := range auth.signedHeaders {
		switch name {
		case "host":
		case "content-length":
			signed.ContentLength = r.ContentLength
		default:
			signed.Header[http.CanonicalHeaderKey(name)] = r.Header.Values(name)
		}
	}
	hash := sha256.Sum256(body)
	key := aws.Credentials{AccessKeyID: s.Key.AccessKeyID, SecretAccessKey: s.Key.SecretAccessKey, SessionToken: signed.Header.Get("X-Amz-Security-Token")}
	if err := sigv4.NewSigner().SignHTTP(r.Context(), key, signed, hex.EncodeToString(hash[:]), service, s.Region, signedAt); err != nil {
		return "", err
	}
	want, _ := parseAuthorization(signed.Header.Get("Authorization"))
	return want.signature, nil
}
