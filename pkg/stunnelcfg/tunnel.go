// Package stunnelcfg renders the specification of a tunnel as stunnel's configuration file, and
// parses which options the installed stunnel has.
package stunnelcfg

import (
	"bytes"
	"fmt"
	"net/netip"
	"strconv"

	"gnuthought.com/efs-stunnel/pkg/tunnel/spec"
)

// Render returns stunnel's configuration file of a tunnel. It returns an error that names an invalid
// field or a required option that stunnel lacks: no file verifies less than another.
func Render(t spec.Tunnel, f Features) ([]byte, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	if err := t.Check(); err != nil {
		return nil, err
	}
	var w writer
	w.printf("; Written by efs-stunnel; changes are overwritten.")
	// The supervisor runs stunnel in the foreground and parses its log. The lines "Configuration
	// successful" and "bound to" have the level info.
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

// writer writes lines. The caller has checked the values.
type writer struct{ bytes.Buffer }

func (w *writer) printf(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

func (w *writer) option(name, value string) { w.printf("%s = %s", name, value) }

func (w *writer) endpoints(t spec.Tunnel, f Features) {
	w.option("accept", hostPort(t.Accept))
	connect := t.Connect
	if !f.Failover {
		// Without the option, stunnel alternates between addresses instead of preferring the first.
		connect = connect[:1]
	}
	for _, address := range connect {
		w.option("connect", hostPort(address))
	}
	if f.Failover {
		w.option("failover", "prio")
	}
}

func (w *writer) verification(t spec.Tunnel, f Features) {
	w.option("checkHost", t.CheckHost)
	if f.SNI {
		// Without the option, stunnel sends the address that it connects to.
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

// timeouts are in seconds. TIMEOUTidle is longer than the interval of NFS lease renewals.
func (w *writer) timeouts() {
	w.option("TIMEOUTbusy", "20")
	w.option("TIMEOUTclose", "0")
	w.option("TIMEOUTconnect", "5")
	w.option("TIMEOUTidle", "70")
}

// optional writes options that stunnel refuses if it was built without the feature.
func (w *writer) optional(f Features) {
	if f.Libwrap {
		w.option("libwrap", "no")
	}
	if f.OCSPAIA {
		w.option("OCSPaia", "no")
	}
}

// hostPort formats IPv6 addresses without brackets: stunnel takes everything before the last colon
// for the address.
func hostPort(a netip.AddrPort) string {
	return a.Addr().Unmap().String() + ":" + strconv.Itoa(int(a.Port()))
}
