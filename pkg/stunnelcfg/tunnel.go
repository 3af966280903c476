// Package stunnelcfg renders the specification of a tunnel as stunnel's configuration file, and
// parses which options the installed stunnel has.
package stunnelcfg

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

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

// Features are the options of stunnel that not every version or build has.
type Features struct {
	Version string // of stunnel, "" if unknown

	CheckHost, VerifyChain, SSLVersionMin, Failover, SNI, Libwrap, OCSPAIA bool

	// FIPS: the TLS library can load a FIPS provider.
	FIPS bool
	// SocketActivation: stunnel can inherit its listening socket (sd_listen_fds(3)).
	SocketActivation bool
}

var (
	versionLine = regexp.MustCompile(`(?m)(?:^|: |\] )stunnel (\d+(?:\.[0-9a-z]+)+) on `)
	buildLine   = regexp.MustCompile(`(?m)\bThreading:\S+ Sockets:(\S+)(?: TLS:(\S+))?`)
	helpLine    = regexp.MustCompile(`(?m)^([A-Za-z]+) +=`)
)

// ParseFeatures parses the output of stunnel -version and -help. An option that the output does not
// mention is missing.
func ParseFeatures(versionOutput, helpOutput string) Features {
	sockets, tls := strings.Split(group(buildLine, 1, versionOutput), ","), strings.Split(group(buildLine, 2, versionOutput), ",")
	options := map[string]bool{}
	for _, found := range helpLine.FindAllStringSubmatch(helpOutput, -1) {
		options[strings.ToLower(found[1])] = true
	}
	return Features{
		Version:       group(versionLine, 1, versionOutput),
		CheckHost:     options["checkhost"],
		VerifyChain:   options["verifychain"],
		SSLVersionMin: options["sslversionmin"],
		Failover:      options["failover"],
		// -help lists the option even if the TLS library does not support SNI.
		SNI:     options["sni"] && slices.Contains(tls, "SNI"),
		Libwrap: options["libwrap"],
		OCSPAIA: options["ocspaia"],
		// Recent builds report it by whether the TLS library loads the provider now.
		FIPS: slices.Contains(tls, "FIPS"),

		SocketActivation: slices.Contains(sockets, "SYSTEMD"),
	}
}

// group returns what a group of the pattern matches in the text, "" without a match.
func group(pattern *regexp.Regexp, number int, text string) string {
	if found := pattern.FindStringSubmatch(text); found != nil {
		return found[number]
	}
	return ""
}

// Check returns an error if stunnel lacks a feature that every tunnel requires, or FIPS if that is
// required, too.
func (f Features) Check(fips bool) error {
	version := cmp.Or(f.Version, "of unknown version")
	for _, required := range []struct {
		option string
		has    bool
	}{{"checkHost", f.CheckHost}, {"verifyChain", f.VerifyChain}, {"sslVersionMin", f.SSLVersionMin}} {
		if !required.has {
			return fmt.Errorf("stunnel %s has no option %s: want version 5.46 or newer, built with OpenSSL 1.1.0 or newer", version, required.option)
		}
	}
	if !f.SocketActivation {
		return fmt.Errorf("stunnel %s cannot be given the socket that it listens on: want one built with systemd's socket activation", version)
	}
	if fips && !f.FIPS {
		return fmt.Errorf("stunnel %s has no FIPS mode, which is required: want one for which stunnel -version lists FIPS, because its TLS library loads a FIPS provider", version)
	}
	return nil
}
