package stunnelcfg_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/stunnelcfg"
)

// FuzzRender checks that Render returns an error or a file with each value in its own option only.
func FuzzRender(f *testing.F) {
	p := plain()
	f.Add(p.Name, "127.0.0.1:20490", "10.0.0.4:2049", p.CheckHost, p.CAFile, "", "", "", 0, false)
	f.Add("fs-1.fsap-1", "[::1]:1", "[2001:db8::1]:2049", "a", "/a", "/b", "/c", strings.Repeat("7f", 32), 3, true)
	f.Add("fs-1\n[evil]", "127.0.0.1:1", "[fe80::1%\n]:1", "a\nverifyChain = no", "/a\r", "/b;", "/c#", "\nkey=/x", -1, false)
	f.Add("a", "[::ffff:127.0.0.1]:1", "[::ffff:1.2.3.4]:1", "a b", "/\x00", "/é", "/\u2028", "0", 1, true)
	f.Fuzz(func(t *testing.T, name, accept, connect, host, ca, cert, key, sum string, restart int, fips bool) {
		tunnel := tunnelspec.Tunnel{Name: name, CheckHost: host, CAFile: ca, Cert: cert, Key: key, CertSum: sum, Restart: restart}
		// An invalid address stays the zero one, which Render must refuse.
		tunnel.Accept, _ = netip.ParseAddrPort(accept)
		address, _ := netip.ParseAddrPort(connect)
		tunnel.Connect = []netip.AddrPort{address}
		config, err := stunnelcfg.Render(tunnel, withFIPS(), fips)
		if err != nil {
			return
		}
		got, err := parseINI(config)
		if err != nil {
			t.Fatalf("%v in\n%s", err, config)
		}
		if diff := cmp.Diff(wantINI(tunnel, fips), got); diff != "" {
			t.Errorf("file mismatch (-want +got):\n%s", diff)
		}
	})
}

// ini maps sections to their options as "name=value" in order; "" is the global section.
type ini map[string][]string

// wantINI returns the expected file of a tunnel.
func wantINI(t tunnelspec.Tunnel, fips bool) ini {
	address := func(a netip.AddrPort) string {
		return fmt.Sprintf("%s:%d", a.Addr().Unmap(), a.Port())
	}
	service := []string{
		"client=yes", "accept=" + address(t.Accept), "connect=" + address(t.Connect[0]), "failover=prio",
		"checkHost=" + t.CheckHost, "sni=" + t.CheckHost, "verifyChain=yes", "CAfile=" + t.CAFile,
	}
	if t.Cert != "" {
		service = append(service, "cert="+t.Cert, "key="+t.Key)
	}
	global := []string{"foreground=yes", "pid=", "syslog=no", "debug=info"}
	service = append(service, "sslVersionMin=TLSv1.2")
	if fips {
		global, service = append(global, "fips=yes"), append(service, "curves=P-256:P-384:P-521")
	}
	service = append(service, "renegotiation=no",
		"TIMEOUTbusy=20", "TIMEOUTclose=0", "TIMEOUTconnect=5", "TIMEOUTidle=70", "libwrap=no", "OCSPaia=no")
	return ini{"": global, t.Name: service}
}

// parseINI shares no code with the writer. It is stricter than stunnel: ambiguous lines are errors.
func parseINI(config []byte) (ini, error) {
	got, section := ini{}, ""
	lines := strings.FieldsFunc(string(config), func(r rune) bool { return slices.Contains([]rune("\n\r\v\f\u0085\u2028\u2029"), r) })
	for _, line := range lines {
		switch line = strings.TrimSpace(line); {
		case line == "", strings.HasPrefix(line, ";"):
		case strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]"):
			section = line[1 : len(line)-1]
			if got[section] != nil {
				return nil, fmt.Errorf("section %q comes twice", section)
			}
		default:
			name, value, ok := strings.Cut(line, "=")
			if !ok || strings.ContainsAny(value, "=;#[]\"'\\\x00") && !strings.HasPrefix(strings.TrimSpace(value), "/") {
				return nil, fmt.Errorf("line %q is ambiguous", line)
			}
			got[section] = append(got[section], strings.TrimSpace(name)+"="+strings.TrimSpace(value))
		}
	}
	return got, nil
}
