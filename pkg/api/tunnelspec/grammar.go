package tunnelspec

import (
	"cmp"
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"strings"
)

// Allowed values. None of these patterns accepts a space, a line break, a bracket, a quote or the
// beginning of a comment.
var (
	tunnelName = regexp.MustCompile(`^[a-z]([-0-9a-z]{0,41}[0-9a-z])?(\.fsap-[0-9a-z]{1,40})?$`)
	dnsLabel   = regexp.MustCompile(`^[0-9A-Za-z]([-0-9A-Za-z]{0,61}[0-9A-Za-z])?$`)
	sha256Sum  = regexp.MustCompile(`^[0-9a-f]{64}$`)
	filePath   = regexp.MustCompile(`^/[-+.,:=@_/0-9A-Za-z]+$`)
)

// maxPathBytes is the kernel's limit without the terminating zero.
const maxPathBytes = 4095

// CheckName returns an error if the name is not valid for a tunnel.
func CheckName(name string) error {
	if !tunnelName.MatchString(name) {
		return fmt.Errorf("name is %.80q: want the id of a target, or that, a dot and the id of an access point", name)
	}
	return nil
}

// Check returns an error that names the first invalid field.
func (t Tunnel) Check() error {
	return cmp.Or(CheckName(t.Name), checkAccept(t.Accept), checkConnect(t.Connect), checkHostName(t.CheckHost),
		checkPath("CA file", t.CAFile), t.checkCASum(), t.checkClientCertificate(), t.checkRestart())
}

// checkAccept allows loopback addresses only: who reaches the port reaches the whole file system. Package
// sockets lists IPv4 sockets only.
func checkAccept(a netip.AddrPort) error {
	if a.Port() == 0 || !a.Addr().IsLoopback() || !a.Addr().Is4() {
		return fmt.Errorf("accept is %.80q: want an IPv4 loopback address and a port", a.String())
	}
	return nil
}

func checkConnect(addresses []netip.AddrPort) error {
	if len(addresses) == 0 || len(addresses) > MaxConnect {
		return fmt.Errorf("connect has %d addresses: want 1 to %d", len(addresses), MaxConnect)
	}
	for i, a := range addresses {
		address := a.Addr().Unmap()
		if a.Port() == 0 || !address.IsValid() || address.IsUnspecified() || address.IsMulticast() || address.Zone() != "" {
			return fmt.Errorf("connect %d is %.80q: want the address and port of one server", i+1, a.String())
		}
	}
	return nil
}

// checkHostName excludes IP addresses, which stunnel's checkHost does not support.
func checkHostName(name string) error {
	_, notAddress := netip.ParseAddr(name)
	valid := len(name) <= 253 && notAddress != nil
	for label := range strings.SplitSeq(name, ".") {
		valid = valid && dnsLabel.MatchString(label)
	}
	if !valid {
		return fmt.Errorf("host name to check is %.80q: want a DNS name", name)
	}
	return nil
}

func checkPath(field, name string) error {
	if len(name) > maxPathBytes || !filePath.MatchString(name) || path.Clean(name) != name {
		return fmt.Errorf("%s is %.80q: want an absolute path of letters, digits and -+.,:=@_ without double dots", field, name)
	}
	return nil
}

func (t Tunnel) checkCASum() error {
	if t.CASum == "" {
		return nil
	}
	return checkSum("CA file", t.CASum)
}

func (t Tunnel) checkClientCertificate() error {
	if t.Cert == "" && t.Key == "" && t.CertSum == "" {
		return nil
	}
	return cmp.Or(checkPath("client certificate", t.Cert), checkSum("client certificate", t.CertSum), checkPath("client key", t.Key))
}

func checkSum(file, sum string) error {
	if !sha256Sum.MatchString(sum) {
		return fmt.Errorf("sum of the %s is %.80q: want a SHA-256 in hexadecimal", file, sum)
	}
	return nil
}

func (t Tunnel) checkRestart() error {
	if t.Restart < 0 {
		return fmt.Errorf("restart serial is %d: want 0 or more", t.Restart)
	}
	return nil
}
