package collect

import (
	"strings"
	"testing"
)

func TestCredentialsAreReplaced(t *testing.T) {
	const key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
	tests := map[string]struct{ in, want string }{
		"an access key":               {"used AKIAIOSFODNN7EXAMPLE now", "used (removed) now"},
		"a temporary access key":      {"ASIAIOSFODNN7EXAMPLE", "(removed)"},
		"a secret key by its form":    {"got " + key + ", twice", "got (removed), twice"},
		"a secret key by its name":    {"aws_secret_access_key = short", "aws_secret_access_key = (removed)"},
		"camel case":                  {`{"SecretAccessKey":"x y","a":1}`, `{"SecretAccessKey":(removed),"a":1}`},
		"a session token":             {`sessionToken: 'a b', b: c`, `sessionToken: (removed), b: c`},
		"JSON with an escaped quote":  {`{"password":"a\"b","c":"d"}`, `{"password":(removed),"c":"d"}`},
		"JSON in JSON":                {`"{\"password\":\"a b\",\"c\":\"d\"}"`, `"{\"password\":(removed),\"c\":\"d\"}"`},
		"a flag":                      {"--db-password=abc --x=1", "--db-password=(removed) --x=1"},
		"a header":                    {"Authorization: Bearer abcdefgh12", "Authorization: Bearer (removed)"},
		"a scheme without a header":   {"sent basic dXNlcjpwYXNz ok", "sent basic (removed) ok"},
		"a web token":                 {"jwt eyJhbGciOiJIUzI1.eyJzdWIiOiIx.c2ln end", "jwt (removed) end"},
		"a URL":                       {"http://user:pass@proxy:3128/x", "http://(removed)@proxy:3128/x"},
		"a presigned URL":             {"?X-Amz-Signature=abc&x=1", "?X-Amz-Signature=(removed)&x=1"},
		"a private key":               {"a\n-----BEGIN EC PRIVATE KEY-----\nabc\n-----END EC PRIVATE KEY-----\nb", "a\n(removed)\nb"},
		"a private key that is cut":   {"a -----BEGIN PRIVATE KEY-----\nabc", "a (removed)"},
		"a token of GitHub":           {"ghp_0123456789abcdefghij", "(removed)"},
		"a message about a value":     {`parameter "secret" is "a b", and`, `parameter "secret" is (removed), and`},
		"the name of a Secret":        {`secret "aws" not found; secretName: aws`, `secret "aws" not found; secretName: aws`},
		"a hash":                      {"sha 0123456789abcdef0123456789abcdef01234567", "sha 0123456789abcdef0123456789abcdef01234567"},
		"a longer word":               {key + "A", key + "A"},
		"a path of the kubelet":       {"/var/lib/kubelet/pods/0123/volumes/Nfs1", "/var/lib/kubelet/pods/0123/volumes/Nfs1"},
		"an account, if not asked to": {"arn:aws:iam::123456789012:role/x", "arn:aws:iam::123456789012:role/x"},
		"a certificate":               {"-----BEGIN CERTIFICATE-----\nabc", "-----BEGIN CERTIFICATE-----\nabc"},
		"an ordinary line":            {`time=2026-01-02T03:04:05Z level=INFO msg="tunnel failed over" from=10.0.0.4 to=10.0.1.4`, `time=2026-01-02T03:04:05Z level=INFO msg="tunnel failed over" from=10.0.0.4 to=10.0.1.4`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := (redactor{}).text(tt.in); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestAccountsAreReplacedIfAskedTo(t *testing.T) {
	in := "123456789012/us-east-1 arn:aws:iam::123456789012:role/x 123456789012.dkr.ecr 1234567890123 00000000-0000-4000-8000-000000000001"
	want := "(account)/us-east-1 arn:aws:iam::(account):role/x (account).dkr.ecr 1234567890123 00000000-0000-4000-8000-000000000001"
	if got := (redactor{accounts: true}).text(in); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestVariablesAreReplacedByName(t *testing.T) {
	for name, want := range map[string]string{
		"AWS_SECRET_ACCESS_KEY": removed, "DB_PASSWORD": removed, "MY_TOKEN": removed, "SSH_KEY": removed, "--auth": removed,
		"NODE_NAME": "x", "WORKER_IMAGE": "x", "AWS_REGION": "x", "HTTPS_PROXY": "x", "KEYBOARD": "x",
	} {
		if got := (redactor{}).variable(name, "x"); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := (redactor{}).variable("MY_TOKEN", ""); got != "" {
		t.Errorf("an empty value: %q", got)
	}
}

// FuzzText: redaction ends, and does not change what it made.
func FuzzText(f *testing.F) {
	for _, seed := range []string{"", "password=", `token:"`, "=" + strings.Repeat("aB1/", 30), "-----BEGIN PRIVATE KEY-----", "://a@b@", "secret: 123456789012"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if once := (redactor{true}).text("AKIAIOSFODNN7EXAMPLE " + text); strings.Contains(once, "AKIAIOSFODNN7EXAMPLE") {
			t.Errorf("%q", once)
		}
	})
}
