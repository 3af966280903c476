package stunnelcfg_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/node/supervise"
	"gnuthought.com/efs-stunnel/pkg/stunnelcfg"
	"gnuthought.com/efs-stunnel/test/support/stunneltest"
)

// allFeatures returns the features of Debian's stunnel.
func allFeatures() stunnelcfg.Features {
	return stunnelcfg.Features{
		Version: "5.68", CheckHost: true, VerifyChain: true, SSLVersionMin: true,
		Failover: true, SNI: true, Libwrap: true, OCSPAIA: true, SocketActivation: true,
	}
}

// withFIPS returns them with a FIPS provider.
func withFIPS() stunnelcfg.Features {
	f := allFeatures()
	f.FIPS = true
	return f
}

func readTestdata(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestParseFeatures(t *testing.T) {
	version, help := readTestdata(t, "version-5.68.txt"), readTestdata(t, "help-5.68.txt")
	without := func(option string) string {
		return regexp.MustCompile(`(?m)^`+option+` .*\n`).ReplaceAllString(help, "")
	}
	with := func(change func(*stunnelcfg.Features)) stunnelcfg.Features {
		f := allFeatures()
		change(&f)
		return f
	}
	tests := map[string]struct {
		version, help string
		want          stunnelcfg.Features
	}{
		"Debian 12":               {version, help, allFeatures()},
		"Debian 13":               {readTestdata(t, "version-5.74.txt"), readTestdata(t, "help-5.74.txt"), with(func(f *stunnelcfg.Features) { f.Version = "5.74" })},
		"built without libwrap":   {version, without("libwrap"), with(func(f *stunnelcfg.Features) { f.Libwrap = false })},
		"built without OCSP":      {version, without("OCSPaia"), with(func(f *stunnelcfg.Features) { f.OCSPAIA = false })},
		"before failover":         {version, without("failover"), with(func(f *stunnelcfg.Features) { f.Failover = false })},
		"before checkHost":        {version, without("checkHost"), with(func(f *stunnelcfg.Features) { f.CheckHost = false })},
		"TLS library without SNI": {regexp.MustCompile(`,SNI`).ReplaceAllString(version, ""), help, with(func(f *stunnelcfg.Features) { f.SNI = false })},
		"FIPS provider":           {regexp.MustCompile(`,OCSP`).ReplaceAllString(version, ",FIPS,OCSP"), help, with(func(f *stunnelcfg.Features) { f.FIPS = true })},
		"as a log shows it": {
			"2026.01.02 03:04:05 LOG5[ui]: stunnel 5.74 on x86_64-alpine-linux-musl platform\n" +
				"2026.01.02 03:04:05 LOG5[ui]: Threading:PTHREAD Sockets:POLL,IPv6 TLS:ENGINE,OCSP,PSK,SNI\n",
			help, with(func(f *stunnelcfg.Features) { f.Version, f.SocketActivation = "5.74", false }),
		},
		"another program": {"bash: stunnel: command not found", "usage: connect = nothing", stunnelcfg.Features{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, stunnelcfg.ParseFeatures(tt.version, tt.help)); diff != "" {
				t.Errorf("features mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInstalledStunnelHasAllRequiredFeatures(t *testing.T) {
	f, err := supervise.QueryFeatures(t.Context(), stunneltest.Path(t), false)
	if err != nil {
		t.Fatal(err)
	}
	if f.Version == "" || !f.CheckHost || !f.VerifyChain || !f.SSLVersionMin || !f.SNI || !f.Failover {
		t.Errorf("got %+v, want a version and all features that tunnels use", f)
	}
}
