// Package stunnelcfg renders the specification of a tunnel as stunnel's configuration file, and
// parses which options the installed stunnel has.
package stunnelcfg

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"strconv"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
)

// Render returns stunnel's configuration file of a tunnel. It returns an error that names an invalid
// field or a required option that stunnel lacks: no file verifies less than another. With fips,
// stunnel does not start without its FIPS mode; without, the TLS library's own default applies.
func Render(t tunnelspec.Tunnel, f Features, fips bool) ([]byte, error) {
	if err := cmp.Or(f.Check(fips), t.Check()); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString(global)
	if fips {
		b.WriteString("fips = yes\n")
	}
	fmt.Fprintf(&b, service, t.Name, hostPort(t.Accept))
	connect := t.Connect
	if !f.Failover {
		// Without the option, stunnel alternates between addresses instead of preferring the first.
		connect = connect[:1]
	}
	for _, address := range connect {
		fmt.Fprintf(&b, "connect = %s\n", hostPort(address))
	}
	for _, option := range []struct {
		name, value string
		wanted      bool // stunnel refuses options for which it was not built
	}{
		{"failover", "prio", f.Failover},
		{"checkHost", t.CheckHost, true},
		{"sni", t.CheckHost, f.SNI}, // without it, stunnel sends the address that it connects to
		{"verifyChain", "yes", true},
		{"CAfile", t.CAFile, true},
		{"cert", t.Cert, t.Cert != ""},
		{"key", t.Key, t.Cert != ""},
		{"sslVersionMin", "TLSv1.2", true},
		// stunnel's default has X25519, for which a FIPS provider makes it refuse the whole list.
		{"curves", "P-256:P-384:P-521", fips},
		{"renegotiation", "no", true},
		{"TIMEOUTbusy", "20", true}, // seconds
		{"TIMEOUTclose", "0", true},
		{"TIMEOUTconnect", "5", true},
		{"TIMEOUTidle", "70", true}, // longer than the interval of NFS lease renewals
		{"libwrap", "no", f.Libwrap},
		{"OCSPaia", "no", f.OCSPAIA},
	} {
		if option.wanted {
			fmt.Fprintf(&b, "%s = %s\n", option.name, option.value)
		}
	}
	return b.Bytes(), nil
}

// global is the global section. The supervisor runs stunnel in the foreground and parses its log, in
// which "Configuration successful" and "bound to" have level info.
const global = `; Written by efs-stunnel; changes are overwritten.
foreground = yes
pid =
syslog = no
debug = info
`

// service is the beginning of the service.
const service = `
[%s]
client = yes
accept = %s
`

// hostPort formats IPv6 addresses without brackets: stunnel takes everything before the last colon
// for the address.
func hostPort(a netip.AddrPort) string {
	return a.Addr().Unmap().String() + ":" + strconv.Itoa(int(a.Port()))
}
