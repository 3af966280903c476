package mountauth

import (
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/mountauth/mountauthtest"
)

// The answers come from the functions of the EFS mount helper itself.
func TestSignaturesAreTheMountHelpers(t *testing.T) {
	tests := map[string]struct{ token, canonicalHash, signature string }{
		"session token": {
			"tok/en+abc==", "c839e199ddf3273c1c3f7aad7e9a6b0c66b788855c933df1848505517cedcb66",
			"43e3d00bb6d6d12d01bb9693105caa9cbebf1c30b743c747eff76b109a07d8df",
		},
		"no session token": {
			"", "",
			"ec126fe37f7da10fe10508e55b4c5b7aab367c7d162abf78bff9b015916d8aea",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			const keyHash = "0123456789abcdef0123456789abcdef01234567"
			r := connectRequest{
				fileSystemID: fileSystem, publicKeyHash: keyHash,
				region: "us-east-1", accessKeyID: "AKIDEXAMPLE", sessionToken: tt.token,
				signedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
			}
			if got := hexSHA256(r.canonical()); tt.canonicalHash != "" && got != tt.canonicalHash {
				t.Errorf("hash %s, want %s, of\n%s", got, tt.canonicalHash, r.canonical())
			}
			if got := r.sign("SECRETEXAMPLE"); got != tt.signature {
				t.Errorf("signature %s, want %s", got, tt.signature)
			}
			second := mountauthtest.IAM{
				AccessKeyID: r.accessKeyID, SecretAccessKey: "SECRETEXAMPLE", SessionToken: tt.token, Region: r.region, At: r.signedAt,
			}
			if got := second.Signature(fileSystem, keyHash); got != tt.signature {
				t.Errorf("signature of tests' clients %s, want %s", got, tt.signature)
			}
		})
	}
}

func TestTheKeyChainIsTheMountHelpers(t *testing.T) {
	got := signString("FAKE_AWS_SECRET_ACCESS_KEY", "us-east-1", time.Date(2000, 1, 1, 12, 0, 0, 0, time.UTC), "string_to_sign")
	if want := "6aa643803d4a1b07c5ac87bff96347ef28dab1cb5a5c5d63969c90ca11454c4a"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
