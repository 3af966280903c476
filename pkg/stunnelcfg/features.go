package stunnelcfg

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Features are the options of stunnel that not every version or build has.
type Features struct {
	Version       string `json:"version"` // of stunnel, "" if unknown
	CheckHost     bool   `json:"checkHost"`
	VerifyChain   bool   `json:"verifyChain"`
	SSLVersionMin bool   `json:"sslVersionMin"`
	Failover      bool   `json:"failover"`
	SNI           bool   `json:"sni"`
	Libwrap       bool   `json:"libwrap"`
	OCSPAIA       bool   `json:"ocspAIA"`
	// FIPS: the TLS library can load a FIPS provider.
	FIPS bool `json:"fips"`
	// SocketActivation: stunnel can inherit its listening socket (sd_listen_fds(3)).
	SocketActivation bool `json:"socketActivation"`
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
