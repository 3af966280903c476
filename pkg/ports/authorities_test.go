package ports_test

import (
	"encoding/pem"
	"os"
	"strings"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/test/support/stunneltest"
)

// authority returns the certificate of a new authority, which ends tomorrow.
func authority(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(stunneltest.NewAuthority(t).File)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAuthoritiesAreCertificatesOnly(t *testing.T) {
	one := authority(t)
	der, _ := pem.Decode([]byte(one))
	block := func(kind string, headers map[string]string) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Headers: headers, Bytes: der.Bytes}))
	}
	for name, tt := range map[string]struct {
		text  string
		count int // 0: refused
	}{
		"one":                   {one, 1},
		"with space around":     {"\n  " + one + "\n\n" + one + "\n", 2},
		"eight":                 {strings.Repeat(one, 8), 8},
		"nine":                  {strings.Repeat(one, 9), 0},
		"none":                  {" \n", 0},
		"a key":                 {one + block("PRIVATE KEY", nil), 0},
		"a key called so":       {block("PRIVATE KEY", nil) + one, 0},
		"headers":               {block("CERTIFICATE", map[string]string{"Proc-Type": "4,ENCRYPTED"}), 0},
		"text before":           {"subject=CN\n" + one, 0},
		"text after":            {one + "x", 0},
		"not a certificate":     {string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})), 0},
		"too many bytes":        {one + strings.Repeat("\n", 16<<10), 0},
		"a path":                {"/etc/ssl/ca.pem", 0},
		"an unfinished PEM":     {strings.TrimSpace(one)[:100], 0},
		"a line that is hidden": {strings.Replace(one, "-----END", "CAfile = /etc/passwd\n-----END", 1), 0},
	} {
		t.Run(name, func(t *testing.T) {
			all, err := ports.Authorities(tt.text)
			if len(all) != tt.count && err == nil || (err == nil) != (tt.count > 0) {
				t.Errorf("got %d certificates, %v; want %d", len(all), err, tt.count)
			}
		})
	}
}

func TestAuthorityOfATargetFollowsThePin(t *testing.T) {
	one := authority(t)
	pinned, err := ports.DecodePinned(ports.Encode(ports.Table{Targets: map[string]ports.Target{
		"fs-1": {CACertificates: one, ClientCertificate: true}, "nas-1": {CACertificates: one, ClientCertificate: true},
	}}))
	if err != nil {
		t.Fatal(err)
	}
	in := ports.Input{Pinned: pinned, Listing: listing("fs-1"), Range: ports.Range{Base: 20490, Count: 10}, Now: time.Now()}
	out := ports.Assign(in)
	stored, err := ports.Decode(ports.Encode(out.Table))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"fs-1", "nas-1"} {
		if stored.Targets[id].CACertificates != one {
			t.Errorf("%s: the table has %q", id, stored.Targets[id].CACertificates)
		}
	}
	for _, id := range []string{"fs-1", "nas-1"} {
		if !stored.Targets[id].ClientCertificate {
			t.Errorf("%s: want the pin's client_certificate, got %+v", id, stored.Targets[id])
		}
	}
	in.Table, in.Pinned = &stored, ports.Table{}
	if got := ports.Assign(in).Table.Targets; got["fs-1"].CACertificates != "" || got["nas-1"].CACertificates != one ||
		got["fs-1"].ClientCertificate || !got["nas-1"].ClientCertificate {
		t.Errorf("unpinned: got %+v, want the agents' roots where the API lists the file system, and the last known elsewhere", got)
	}
	pinned.Targets["nas-1"] = ports.Target{}
	in.Pinned = pinned
	if got := ports.Assign(in).Table.Targets["nas-1"]; got.CACertificates != "" || got.ClientCertificate {
		t.Errorf("taken out of the pin: got %+v", got)
	}
}

func TestTargetWithSomethingElseForAuthoritiesIsRefused(t *testing.T) {
	for _, value := range []string{"x", "[a]", "7", `"-----BEGIN PRIVATE KEY-----"`} {
		text := "efs_stunnel_targets:\n  nas-1:\n    ca_certificates: " + value + "\n"
		if _, err := ports.DecodePinned([]byte(text)); err == nil || !strings.Contains(err.Error(), "ca_certificates") {
			t.Errorf("%s: got %v, want an error that names the key", value, err)
		}
	}
}

func TestAuthorityThatEndsIsReported(t *testing.T) {
	one := authority(t)
	for name, tt := range map[string]struct {
		at   time.Time
		want bool
	}{
		"two months before": {time.Now().AddDate(0, -2, 0), false},
		"a week before":     {time.Now().AddDate(0, 0, -7), true},
		"afterwards":        {time.Now().AddDate(1, 0, 0), true},
	} {
		t.Run(name, func(t *testing.T) {
			out := ports.Assign(ports.Input{
				Pinned: ports.Table{Targets: map[string]ports.Target{"nas-1": {CACertificates: one}, "nas-2": {}}},
				Filter: efs.Filter{}, Range: ports.Range{Base: 20490, Count: 10}, Now: tt.at,
			})
			var found []ports.Event
			for _, c := range out.Conditions {
				if c.Reason == wellknown.EventAuthorityEnds {
					found = append(found, c)
				}
			}
			if (len(found) == 1) != tt.want {
				t.Fatalf("got %+v", found)
			}
			if tt.want && (found[0].FileSystem != "nas-1" || !strings.Contains(found[0].Message, "test authority")) {
				t.Errorf("got %+v, want the subject and the end", found[0])
			}
		})
	}
}
