package stunnelcfg_test

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/stunnelcfg"
)

var update = flag.Bool("update", false, "write the golden files anew")

func addresses(texts ...string) []netip.AddrPort {
	var all []netip.AddrPort
	for _, text := range texts {
		all = append(all, netip.MustParseAddrPort(text))
	}
	return all
}

// plain is an ordinary tunnel.
func plain() stunnelcfg.Tunnel {
	return stunnelcfg.Tunnel{
		Name: "fs-34a3p3", Accept: netip.MustParseAddrPort("127.0.0.1:20490"),
		Connect:   addresses("10.0.0.4:2049", "10.0.1.4:2049", "10.0.2.4:2049"),
		CheckHost: "fs-34a3p3.efs.us-east-1.amazonaws.com",
		CAFile:    "/etc/efs-stunnel/amazon-roots.pem",
	}
}

type golden struct {
	tunnel   stunnelcfg.Tunnel
	features stunnelcfg.Features
}

// goldens are by file name.
func goldens() map[string]golden {
	withCertificate := plain()
	withCertificate.Name += ".fsap-0123456789abcdef0"
	withCertificate.Cert, withCertificate.Key = "/run/efs-stunnel/client.pem", "/run/efs-stunnel/client.key"
	withCertificate.CertSum = strings.Repeat("0a", 32)
	ipv6 := plain()
	ipv6.Accept, ipv6.Connect = netip.MustParseAddrPort("[::1]:20490"), addresses("[2001:db8::4]:2049")
	standby := plain()
	standby.Accept, standby.Restart = netip.MustParseAddrPort("127.0.0.2:20490"), 7
	least := stunnelcfg.Features{CheckHost: true, VerifyChain: true, SSLVersionMin: true}
	return map[string]golden{
		"plain":              {plain(), everything()},
		"client-certificate": {withCertificate, everything()},
		"ipv6":               {ipv6, everything()},
		"standby":            {standby, everything()},
		"least-features":     {plain(), least},
	}
}

func TestGolden(t *testing.T) {
	for name, tt := range goldens() {
		t.Run(name, func(t *testing.T) {
			got, err := stunnelcfg.Render(tt.tunnel, tt.features)
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
				t.Errorf("file mismatch (-want +got); -update writes it anew:\n%s", diff)
			}
		})
	}
}

func TestReadBack(t *testing.T) {
	for name, tt := range goldens() {
		config, err := stunnelcfg.Render(tt.tunnel, tt.features)
		if err != nil {
			t.Fatal(err)
		}
		if got := stunnelcfg.Restart(config); got != tt.tunnel.Restart {
			t.Errorf("%s: got restart serial %d, want %d", name, got, tt.tunnel.Restart)
		}
		if got := stunnelcfg.Accept(config); got != tt.tunnel.Accept {
			t.Errorf("%s: got accept %s, want %s", name, got, tt.tunnel.Accept)
		}
	}
	for _, strange := range []string{"", "; restart x\naccept = nonsense\n", "accept = 1.2.3.4:70000\n", "accept = :\n"} {
		if serial, accept := stunnelcfg.Restart([]byte(strange)), stunnelcfg.Accept([]byte(strange)); serial != 0 || accept.IsValid() {
			t.Errorf("%q: got %d and %s, want nothing", strange, serial, accept)
		}
	}
}

// Each value is fine but for one thing.
func TestRefusedValues(t *testing.T) {
	tests := map[string]struct {
		spoil func(*stunnelcfg.Tunnel)
		want  string // in the error
	}{
		"name with a line break":     {func(t *stunnelcfg.Tunnel) { t.Name = "fs-1\n[evil]" }, "name"},
		"name with a bracket":        {func(t *stunnelcfg.Tunnel) { t.Name = "fs-1]" }, "name"},
		"name ends in a line break":  {func(t *stunnelcfg.Tunnel) { t.Name = "fs-1\n" }, "name"},
		"name with a directory":      {func(t *stunnelcfg.Tunnel) { t.Name = "../fs-1" }, "name"},
		"name of a status file":      {func(t *stunnelcfg.Tunnel) { t.Name = "status.json" }, "name"},
		"name of another alphabet":   {func(t *stunnelcfg.Tunnel) { t.Name = "fs-١" }, "name"},
		"no name":                    {func(t *stunnelcfg.Tunnel) { t.Name = "" }, "name"},
		"open to the network":        {func(t *stunnelcfg.Tunnel) { t.Accept = netip.MustParseAddrPort("0.0.0.0:20490") }, "accept"},
		"on the node's address":      {func(t *stunnelcfg.Tunnel) { t.Accept = netip.MustParseAddrPort("10.0.0.1:20490") }, "accept"},
		"no port":                    {func(t *stunnelcfg.Tunnel) { t.Accept = netip.MustParseAddrPort("127.0.0.1:0") }, "accept"},
		"nowhere to accept":          {func(t *stunnelcfg.Tunnel) { t.Accept = netip.AddrPort{} }, "accept"},
		"nowhere to connect":         {func(t *stunnelcfg.Tunnel) { t.Connect = nil }, "connect"},
		"connect without an address": {func(t *stunnelcfg.Tunnel) { t.Connect = []netip.AddrPort{{}} }, "connect 1"},
		"connect to a zone":          {func(t *stunnelcfg.Tunnel) { t.Connect = addresses("10.0.0.1:1", "[fe80::1%eth0]:2049") }, "connect 2"},
		"connect to port 0":          {func(t *stunnelcfg.Tunnel) { t.Connect = addresses("10.0.0.1:0") }, "connect 1"},
		"too many addresses":         {func(t *stunnelcfg.Tunnel) { t.Connect = make([]netip.AddrPort, 33) }, "connect has 33"},
		"host with a comment":        {func(t *stunnelcfg.Tunnel) { t.CheckHost = "a.example;b" }, "host name"},
		"host with a line break":     {func(t *stunnelcfg.Tunnel) { t.CheckHost = "a.example\nverifyChain = no" }, "host name"},
		"host with a space":          {func(t *stunnelcfg.Tunnel) { t.CheckHost = "a.example b" }, "host name"},
		"host with a zero byte":      {func(t *stunnelcfg.Tunnel) { t.CheckHost = "a.example\x00" }, "host name"},
		"host is a wildcard":         {func(t *stunnelcfg.Tunnel) { t.CheckHost = "*.example.com" }, "host name"},
		"host is an address":         {func(t *stunnelcfg.Tunnel) { t.CheckHost = "10.0.0.4" }, "host name"},
		"no host to check":           {func(t *stunnelcfg.Tunnel) { t.CheckHost = "" }, "host name"},
		"host is too long":           {func(t *stunnelcfg.Tunnel) { t.CheckHost = strings.Repeat("a.", 127) }, "host name"},
		"no roots":                   {func(t *stunnelcfg.Tunnel) { t.CAFile = "" }, "CA file"},
		"roots by a relative path":   {func(t *stunnelcfg.Tunnel) { t.CAFile = "roots.pem" }, "CA file"},
		"roots by a detour":          {func(t *stunnelcfg.Tunnel) { t.CAFile = "/etc/../tmp/roots.pem" }, "CA file"},
		"roots with a line break":    {func(t *stunnelcfg.Tunnel) { t.CAFile = "/a\nverifyChain=no" }, "CA file"},
		"roots with a space":         {func(t *stunnelcfg.Tunnel) { t.CAFile = "/a b" }, "CA file"},
		"certificate without key":    {func(t *stunnelcfg.Tunnel) { t.Cert, t.CertSum = "/a.pem", strings.Repeat("0", 64) }, "client key"},
		"key without certificate":    {func(t *stunnelcfg.Tunnel) { t.Key = "/a.key" }, "client certificate"},
		"engine for a certificate":   {func(t *stunnelcfg.Tunnel) { t.Cert, t.Key = "pkcs11:id", "/a.key" }, "client certificate"},
		"sum with a line break": {func(t *stunnelcfg.Tunnel) {
			t.Cert, t.Key, t.CertSum = "/a", "/b", strings.Repeat("0", 64)+"\nverifyChain = no"
		}, "sum"},
		"certificate without sum": {func(t *stunnelcfg.Tunnel) { t.Cert, t.Key = "/a", "/b" }, "sum"},
		"sum of no certificate":   {func(t *stunnelcfg.Tunnel) { t.CertSum = strings.Repeat("0", 64) }, "client certificate"},
		"negative serial":         {func(t *stunnelcfg.Tunnel) { t.Restart = -1 }, "restart serial"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tunnel := plain()
			tt.spoil(&tunnel)
			config, err := stunnelcfg.Render(tunnel, everything())
			if err == nil || config != nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %q and error %v, want a line that names %s", config, err, tt.want)
			}
		})
	}
}

func TestNeverLessThanVerified(t *testing.T) {
	for option, spoil := range map[string]func(*stunnelcfg.Features){
		"checkHost":     func(f *stunnelcfg.Features) { f.CheckHost = false },
		"verifyChain":   func(f *stunnelcfg.Features) { f.VerifyChain = false },
		"sslVersionMin": func(f *stunnelcfg.Features) { f.SSLVersionMin = false },
	} {
		f := everything()
		spoil(&f)
		if config, err := stunnelcfg.Render(plain(), f); err == nil || !strings.Contains(err.Error(), option) || config != nil {
			t.Errorf("without %s: got %q and %v, want an error that names it", option, config, err)
		}
	}
}
