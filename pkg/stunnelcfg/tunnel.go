// Package stunnelcfg turns a tunnel into the configuration file of its stunnel process, reads
// back what the supervisor needs of it, and knows which options the installed stunnel has.
//
// Every value comes from a ConfigMap that somebody may have edited, so each is held against a
// strict grammar before it becomes part of a line: no value can add a line or an option.
package stunnelcfg

import (
	"bytes"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Tunnel is one local port and what it leads to.
type Tunnel struct {
	// Name is the target's id, for an access point followed by "." and that one's id. It is
	// the name of the stunnel service and the end of the file's name.
	Name    string
	Accept  netip.AddrPort   // on a loopback address
	Connect []netip.AddrPort // in order of preference, at most MaxConnect
	// CheckHost is the DNS name that the server's certificate must have and that is sent as SNI.
	CheckHost string
	CAFile    string // absolute path of the trusted roots, PEM
	// Cert and Key are absolute paths of the client certificate, PEM; "" for none.
	Cert, Key string
	// CertSum is the SHA-256 of what is in Cert, in hexadecimal: when that changes, the file's
	// bytes must, too, or nobody would have stunnel read it again.
	CertSum string
	// Restart counts the restarts asked for: when it changes, the process is restarted, so that
	// its connections begin anew; any other change is reloaded and keeps them.
	Restart int
}

// MaxConnect bounds the addresses of one tunnel: EFS has one in each zone.
const MaxConnect = 32

// Render gives the bytes of a tunnel's configuration file. Equal tunnels give equal bytes. It
// returns an error that names the field whose value is not allowed, or the option that stunnel
// lacks: never a file in which less is verified.
func Render(t Tunnel, f Features) ([]byte, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	var w writer
	w.printf("; Written by efs-stunnel; changes are overwritten.")
	w.printf("%s%d", restartLine, t.Restart)
	if t.Cert != "" {
		w.printf("; certificate %s", t.CertSum)
	}
	// The supervisor runs stunnel in the foreground and follows its log, in which
	// "Configuration successful" and "bound to" are of level info.
	w.option("foreground", "yes")
	w.printf("pid =")
	w.option("syslog", "no")
	w.option("debug", "info")
	w.printf("")
	w.printf("[%s]", t.Name)
	w.option("client", "yes")
	w.endpoints(t, f)
	w.verification(t, f)
	w.timeouts()
	w.optional(f)
	return w.Bytes(), nil
}

// writer writes lines; its values have been checked.
type writer struct{ bytes.Buffer }

func (w *writer) printf(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

func (w *writer) option(name, value string) { w.printf("%s = %s", name, value) }

func (w *writer) endpoints(t Tunnel, f Features) {
	w.option("accept", hostPort(t.Accept))
	connect := t.Connect
	if !f.Failover {
		// Such a stunnel takes turns instead of preferring the first: one address only.
		connect = connect[:1]
	}
	for _, address := range connect {
		w.option("connect", hostPort(address))
	}
	if f.Failover {
		w.option("failover", "prio")
	}
}

func (w *writer) verification(t Tunnel, f Features) {
	w.option("checkHost", t.CheckHost)
	if f.SNI {
		// Without it, stunnel sends the address that it connects to.
		w.option("sni", t.CheckHost)
	}
	w.option("verifyChain", "yes")
	w.option("CAfile", t.CAFile)
	if t.Cert != "" {
		w.option("cert", t.Cert)
		w.option("key", t.Key)
	}
	w.option("sslVersionMin", "TLSv1.2")
	w.option("renegotiation", "no")
}

// timeouts are in seconds. Idle connections outlive the NFS lease's renewals.
func (w *writer) timeouts() {
	w.option("TIMEOUTbusy", "20")
	w.option("TIMEOUTclose", "0")
	w.option("TIMEOUTconnect", "5")
	w.option("TIMEOUTidle", "70")
}

// optional are options that a stunnel built without the feature refuses.
func (w *writer) optional(f Features) {
	if f.Libwrap {
		w.option("libwrap", "no")
	}
	if f.OCSPAIA {
		w.option("OCSPaia", "no")
	}
}

// hostPort writes IPv6 addresses without brackets: stunnel takes everything before the last
// colon for the address, brackets included.
func hostPort(a netip.AddrPort) string {
	return a.Addr().Unmap().String() + ":" + strconv.Itoa(int(a.Port()))
}

const (
	restartLine = "; restart "
	acceptLine  = "accept = "
)

// Restart reads the serial of a rendered file; 0 where there is none.
func Restart(config []byte) int {
	serial, err := strconv.Atoi(lineValue(config, restartLine))
	if err != nil {
		return 0
	}
	return serial
}

// Accept reads where a rendered file has stunnel listen; the zero AddrPort where it does not say.
func Accept(config []byte) netip.AddrPort {
	value := lineValue(config, acceptLine)
	colon := strings.LastIndexByte(value, ':')
	if colon < 0 {
		return netip.AddrPort{}
	}
	address, err := netip.ParseAddr(value[:colon])
	if err != nil {
		return netip.AddrPort{}
	}
	port, err := strconv.ParseUint(value[colon+1:], 10, 16)
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(address, uint16(port))
}

// lineValue is the rest of the first line that begins so.
func lineValue(config []byte, begin string) string {
	for line := range bytes.Lines(config) {
		if value, ok := bytes.CutPrefix(line, []byte(begin)); ok {
			return string(bytes.TrimRight(value, "\n"))
		}
	}
	return ""
}
