package mountauth

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/mountauth/mountauthtest"
)

func hexOf(b []byte) string { return hex.EncodeToString(b) }

func replaced(t *testing.T, der []byte, old, with string) []byte {
	t.Helper()
	after := bytes.Replace(der, []byte(old), []byte(with), 1)
	if bytes.Equal(after, der) {
		t.Fatalf("%x has no %q", der, old)
	}
	return after
}

// der joins pieces of DER: strings, and bytes as numbers.
func der(pieces ...any) []byte {
	var b []byte
	for _, p := range pieces {
		switch p := p.(type) {
		case string:
			b = append(b, p...)
		case int:
			b = append(b, byte(p))
		}
	}
	return b
}

func TestExtensionsMustBeStrictDER(t *testing.T) {
	digest := strings.Repeat("0", 64)
	iam := func(pieces ...any) []byte {
		content := der(pieces...)
		return append(der(0x30, len(content)), content...)
	}
	tests := map[string]struct {
		number int
		value  []byte
		want   string
	}{
		"printable string":          {1, der(0x13, 6, "fsap-1"), "UTF8String"},
		"bare text":                 {1, []byte("fsap-1"), "UTF8String"},
		"text after the string":     {1, der(0x0c, 6, "fsap-1", "x"), "1 bytes follow the value"},
		"length in the long form":   {1, der(0x0c, 0x81, 6, "fsap-1"), "UTF8String"},
		"indefinite length":         {1, der(0x2c, 0x80, 0x0c, 6, "fsap-1", 0, 0), "UTF8String"},
		"another kind of id":        {1, der(0x0c, 4, "fs-1"), "begins with fsap-"},
		"no id":                     {1, der(0x0c, 5, "fsap-"), "begins with fsap-"},
		"empty":                     {1, nil, "UTF8String"},
		"signature as bytes":        {2, iam(0x0c, 1, "A", 0x04, 32, digest[:32], 0x17, 13, "260102030405Z"), "64 of 0-9 and a-f"},
		"signature in capitals":     {2, iam(0x0c, 1, "A", 0x04, 64, strings.Repeat("A", 64), 0x17, 13, "260102030405Z"), "64 of 0-9 and a-f"},
		"signature as string":       {2, iam(0x0c, 1, "A", 0x0c, 64, digest, 0x17, 13, "260102030405Z"), "SEQUENCE"},
		"key as printable string":   {2, iam(0x13, 1, "A", 0x04, 64, digest, 0x17, 13, "260102030405Z"), "not its DER form"},
		"generalized time":          {2, iam(0x0c, 1, "A", 0x04, 64, digest, 0x18, 15, "20260102030405Z"), "not its DER form"},
		"time without seconds":      {2, iam(0x0c, 1, "A", 0x04, 64, digest, 0x17, 11, "2601020304Z"), "not its DER form"},
		"time of another zone":      {2, iam(0x0c, 1, "A", 0x04, 64, digest, 0x17, 17, "260102030405+0100"), "not in UTC"},
		"no time":                   {2, iam(0x0c, 1, "A", 0x04, 64, digest), "SEQUENCE"},
		"token without its tag":     {2, iam(0x0c, 1, "A", 0x04, 64, digest, 0x17, 13, "260102030405Z", 0x0c, 1, "t"), "not its DER form"},
		"token with implicit tag":   {2, iam(0x0c, 1, "A", 0x04, 64, digest, 0x17, 13, "260102030405Z", 0x80, 1, "t"), "SEQUENCE"},
		"empty token":               {2, iam(0x0c, 1, "A", 0x04, 64, digest, 0x17, 13, "260102030405Z", 0xa0, 2, 0x0c, 0), "not its DER form"},
		"something after the time":  {2, iam(0x0c, 1, "A", 0x04, 64, digest, 0x17, 13, "260102030405Z", 0x05, 0), "SEQUENCE"},
		"something after the token": {2, iam(0x0c, 1, "A", 0x04, 64, digest, 0x17, 13, "260102030405Z", 0xa0, 3, 0x0c, 1, "t", 0x05, 0), "not its DER form"},
		"SET in place of SEQUENCE":  {4, der(0x31, 6, 0x0c, 1, "a", 0x0c, 1, "b"), "SEQUENCE"},
		"long source":               {4, der(0x30, 106, 0x0c, 101, strings.Repeat("s", 101), 0x0c, 1, "b"), "101 characters"},
		"an unknown extension":      {5, der(0x0c, 1, "a"), "no client of EFS sends this extension"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			chain := parse(t, mountauthtest.Certificate(t, mountauthtest.Client{FileSystemID: fileSystem, Edit: func(c *x509.Certificate) {
				c.ExtraExtensions = append(c.ExtraExtensions, pkix.Extension{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 4843, 7, tt.number}, Value: tt.value})
			}}))
			_, err := verifier(time.Now()).Verify(fileSystem, chain)
			wantRefusal(t, err, Certificate, tt.want)
		})
	}
}

func TestFileSystemExtensionIsRequired(t *testing.T) {
	chain := parse(t, mountauthtest.Certificate(t, mountauthtest.Client{AccessPointID: accessPoint}))
	_, err := verifier(time.Now()).Verify(fileSystem, chain)
	wantRefusal(t, err, Certificate, "1.3.6.1.4.1.4843.7.3 is missing")
}

func TestExtensionMayOccurOnce(t *testing.T) {
	chain := parse(t, mountauthtest.Certificate(t, mountauthtest.Client{FileSystemID: fileSystem}))
	chain[0].Extensions = append(chain[0].Extensions, chain[0].Extensions...)
	_, err := verifier(time.Now()).Verify(fileSystem, chain)
	wantRefusal(t, err, Certificate, "occurs twice")
}
