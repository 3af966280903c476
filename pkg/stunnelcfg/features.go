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
	// SocketActivation: stunnel can inherit its listening socket (sd_listen_fds(3)).
	SocketActivation bool `json:"socketActivation"`
}

var (
	versionLine = regexp.MustCompile(`(?m)(?:^|: |\] )stunnel (\d+(?:\.[0-9a-z]+)+) on `)
	socketsLine = regexp.MustCompile(`(?m)\bThreading:\S+ Sockets:(\S+)`)
	tlsLine     = regexp.MustCompile(`(?m)\bThreading:\S+ Sockets:\S+ TLS:(\S+)`)
	helpLine    = regexp.MustCompile(`(?m)^([A-Za-z]+) +=`)
)

// ParseFeatures parses the output of stunnel -version and -help. An option that the output does not
// mention is missing.
func ParseFeatures(versionOutput, helpOutput string) Features {
	options := map[string]bool{}
	for _, found := range helpLine.FindAllStringSubmatch(helpOutput, -1) {
		options[strings.ToLower(found[1])] = true
	}
	return Features{
		Version:       firstGroup(versionLine, versionOutput),
		CheckHost:     options["checkhost"],
		VerifyChain:   options["verifychain"],
		SSLVersionMin: options["sslversionmin"],
		Failover:      options["failover"],
		// -help lists the option even if the TLS library does not support SNI.
		SNI:     options["sni"] && builtWith(tlsLine, "SNI", versionOutput),
		Libwrap: options["libwrap"],
		OCSPAIA: options["ocspaia"],

		SocketActivation: builtWith(socketsLine, "SYSTEMD", versionOutput),
	}
}

func builtWith(list *regexp.Regexp, feature, versionOutput string) bool {
	return slices.Contains(strings.Split(firstGroup(list, versionOutput), ","), feature)
}

func firstGroup(pattern *regexp.Regexp, text string) string {
	found := pattern.FindStringSubmatch(text)
	if found == nil {
		return ""
	}
	return found[1]
}

// Check returns an error if stunnel lacks a feature that every tunnel requires.
func (f Features) Check() error {
	switch {
	case !f.CheckHost:
		return f.missingOption("checkHost")
	case !f.VerifyChain:
		return f.missingOption("verifyChain")
	case !f.SSLVersionMin:
		return f.missingOption("sslVersionMin")
	case !f.SocketActivation:
		return fmt.Errorf("stunnel %s cannot be given the socket that it listens on: want one built with systemd's socket activation", f.version())
	}
	return nil
}

func (f Features) missingOption(option string) error {
	return fmt.Errorf("stunnel %s has no option %s: want version 5.46 or newer, built with OpenSSL 1.1.0 or newer", f.version(), option)
}

func (f Features) version() string { return cmp.Or(f.Version, "of unknown version") }
