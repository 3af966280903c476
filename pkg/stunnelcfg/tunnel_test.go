package stunnelcfg_test

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/stunnelcfg"
)

var update = flag.Bool("update", false, "update the golden files")

func addresses(texts ...string) []netip.AddrPort {
	var all []netip.AddrPort
	for _, text := range texts {
		all = append(all, netip.MustParseAddrPort(text))
	}
	return all
}

// plain returns a valid tunnel.
func plain() tunnelspec.Tunnel {
	return tunnelspec.Tunnel{
		Name: "fs-34a3p3", Accept: netip.MustParseAddrPort("127.0.0.1:20490"),
		Connect:   addresses("10.0.0.4:2049", "10.0.1.4:2049", "10.0.2.4:2049"),
		CheckHost: "fs-34a3p3.efs.us-east-1.amazonaws.com",
		CAFile:    "/etc/efs-stunnel/amazon-roots.pem",
	}
}

type golden struct {
	tunnel   tunnelspec.Tunnel
	features stunnelcfg.Features
	fips     bool
}

// goldens maps names of golden files to what they render.
func goldens() map[string]golden {
	withCertificate := plain()
	withCertificate.Name += ".fsap-0123456789abcdef0"
	withCertificate.Cert, withCertificate.Key = "/run/efs-stunnel/client.pem", "/run/efs-stunnel/client.key"
	withCertificate.CertSum = strings.Repeat("0a", 32)
	ipv6 := plain()
	ipv6.Connect = addresses("[2001:db8::4]:2049")
	standby := plain()
	standby.Accept, standby.Restart = netip.MustParseAddrPort("127.0.0.2:20490"), 7
	least := stunnelcfg.Features{CheckHost: true, VerifyChain: true, SSLVersionMin: true, SocketActivation: true}
	return map[string]golden{
		"plain":              {plain(), allFeatures(), false},
		"client-certificate": {withCertificate, allFeatures(), false},
		"ipv6":               {ipv6, allFeatures(), false},
		"standby":            {standby, allFeatures(), false},
		"least-features":     {plain(), least, false},
		"fips":               {plain(), withFIPS(), true},
	}
}

func TestGolden(t *testing.T) {
	for name, tt := range goldens() {
		t.Run(name, func(t *testing.T) {
			got, err := stunnelcfg.Render(tt.tunnel, tt.features, tt.fips)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name+".conf")
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(readTestdata(t, name+".conf"), string(got)); diff != "" {
				t.Errorf("file mismatch (-want +got); -update updates the file:\n%s", diff)
			}
		})
	}
}

func TestMissingFeatureFailsRender(t *testing.T) {
	for option, spoil := range map[string]func(*stunnelcfg.Features){
		"checkHost":     func(f *stunnelcfg.Features) { f.CheckHost = false },
		"verifyChain":   func(f *stunnelcfg.Features) { f.VerifyChain = false },
		"sslVersionMin": func(f *stunnelcfg.Features) { f.SSLVersionMin = false },
		"socket":        func(f *stunnelcfg.Features) { f.SocketActivation = false },
		"FIPS":          func(f *stunnelcfg.Features) { f.FIPS = false },
	} {
		f := withFIPS()
		spoil(&f)
		if config, err := stunnelcfg.Render(plain(), f, true); err == nil || !strings.Contains(err.Error(), option) || config != nil {
			t.Errorf("without %s: got %q and %v, want an error that names it", option, config, err)
		}
	}
}
