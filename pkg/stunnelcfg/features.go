package stunnelcfg

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Features are what a stunnel program understands of the options that not every version or
// build has.
type Features struct {
	Version       string `json:"version"` // of stunnel, "" when it did not say
	CheckHost     bool   `json:"checkHost"`
	VerifyChain   bool   `json:"verifyChain"`
	SSLVersionMin bool   `json:"sslVersionMin"`
	Failover      bool   `json:"failover"`
	SNI           bool   `json:"sni"`
	Libwrap       bool   `json:"libwrap"`
	OCSPAIA       bool   `json:"ocspAIA"`
	// SocketActivation: it takes a listening socket from whoever starts it, as systemd's services
	// do (sd_listen_fds(3)).
	SocketActivation bool `json:"socketActivation"`
}

var (
	versionLine = regexp.MustCompile(`(?m)(?:^|: |\] )stunnel (\d+(?:\.[0-9a-z]+)+) on `)
	socketsLine = regexp.MustCompile(`(?m)\bThreading:\S+ Sockets:(\S+)`)
	tlsLine     = regexp.MustCompile(`(?m)\bThreading:\S+ Sockets:\S+ TLS:(\S+)`)
	helpLine    = regexp.MustCompile(`(?m)^([A-Za-z]+) +=`)
)

// ParseFeatures reads what the program prints for -version and for -help. What these do not
// mention is taken to be missing.
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
		// -help lists the option also where the TLS library cannot send the name.
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

// Check refuses a stunnel that cannot verify what tunnels promise.
func (f Features) Check() error {
	switch {
	case !f.CheckHost:
		return f.lacks("checkHost")
	case !f.VerifyChain:
		return f.lacks("verifyChain")
	case !f.SSLVersionMin:
		return f.lacks("sslVersionMin")
	case !f.SocketActivation:
		return fmt.Errorf("stunnel %s cannot be given the socket that it listens on: want one built with systemd's socket activation", f.version())
	}
	return nil
}

func (f Features) lacks(option string) error {
	return fmt.Errorf("stunnel %s has no option %s: want version 5.46 or newer, built with OpenSSL 1.1.0 or newer", f.version(), option)
}

func (f Features) version() string { return cmp.Or(f.Version, "of unknown version") }
