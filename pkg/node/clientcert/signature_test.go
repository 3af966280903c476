package clientcert_test

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/node/clientcert"
)

const knownKeyID = "0123456789abcdef0123456789abcdef01234567"

// known is the request of the known answers.
func known(token string) clientcert.Request {
	return clientcert.Request{
		CommonName: "node-1", Identity: clientcert.Identity{FileSystem: "fs-0123456789abcdef0", IAM: true, Region: "us-east-1"},
		Credentials: clientcert.Credentials{
			AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "SECRETEXAMPLE", SessionToken: token,
		},
		Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
}

// The answers are those of AWS's own mount helper.
func TestKnownSignatures(t *testing.T) {
	tests := map[string]struct {
		token, canonicalSum, signature string
	}{
		"temporary credentials": {
			token:        "tok/en+abc==",
			canonicalSum: "c839e199ddf3273c1c3f7aad7e9a6b0c66b788855c933df1848505517cedcb66",
			signature:    "43e3d00bb6d6d12d01bb9693105caa9cbebf1c30b743c747eff76b109a07d8df",
		},
		"lasting credentials": {
			signature: "ec126fe37f7da10fe10508e55b4c5b7aab367c7d162abf78bff9b015916d8aea",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := known(tt.token)
			sum := sha256.Sum256([]byte(r.CanonicalRequest(knownKeyID)))
			if got := hex.EncodeToString(sum[:]); tt.canonicalSum != "" && got != tt.canonicalSum {
				t.Errorf("canonical request has the sum %s, want %s:\n%s", got, tt.canonicalSum, r.CanonicalRequest(knownKeyID))
			}
			if got := r.Signature(knownKeyID); got != tt.signature {
				t.Errorf("got signature %s, want %s", got, tt.signature)
			}
		})
	}
}

func TestCanonicalRequest(t *testing.T) {
	want := strings.Join([]string{
		"GET",
		"/",
		"Action=Connect&PublicKeyHash=" + knownKeyID + "&X-Amz-Algorithm=AWS4-HMAC-SHA256" +
			"&X-Amz-Credential=AKIDEXAMPLE%2F20260102%2Fus-east-1%2Felasticfilesystem%2Faws4_request" +
			"&X-Amz-Date=20260102T030405Z&X-Amz-Expires=86400&X-Amz-Security-Token=tok%2Fen%2Babc%3D%3D&X-Amz-SignedHeaders=host",
		"host:fs-0123456789abcdef0",
		"host",
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
	}, "\n")
	if got := known("tok/en+abc==").CanonicalRequest(knownKeyID); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestSigningKey is the mount helper's own test of the key.
func TestSigningKey(t *testing.T) {
	c := clientcert.Credentials{SecretAccessKey: "FAKE_AWS_SECRET_ACCESS_KEY"}
	got := c.Sign("string_to_sign", time.Date(2000, 1, 1, 12, 0, 0, 0, time.UTC), "us-east-1")
	if want := "6aa643803d4a1b07c5ac87bff96347ef28dab1cb5a5c5d63969c90ca11454c4a"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A node's own zone must not get into what is signed.
func TestTimeIsUniversal(t *testing.T) {
	r := known("")
	want := r.Signature(knownKeyID)
	r.Now = r.Now.In(time.FixedZone("elsewhere", -11*60*60))
	if got := r.Signature(knownKeyID); got != want {
		t.Errorf("got %s in another zone, want %s", got, want)
	}
}
