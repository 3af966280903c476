package supervise

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/program/process"
)

// line is one line of stunnel's log.
type line struct {
	level  slog.Level
	thread string // mainThread or, for example, the number of a connection
	text   string
}

// mainThread is the thread that starts, reloads and accepts connections.
const mainThread = "ui"

func parseLine(raw string) line {
	level, thread, text := process.ParseStunnel(raw)
	return line{level, cmp.Or(thread, mainThread), text}
}

const (
	// maxErrorLines bounds the lines kept of one start or reload, and shownErrorLines those in its problem.
	maxErrorLines, shownErrorLines = 16, 4
	// maxConns bounds the connections that are tracked. NFS opens one or two.
	maxConns = 64
)

// configurationFailed is the last line that stunnel logs when it refuses a configuration.
const configurationFailed = "Configuration failed"

// tlsConnected begins the line about a handshake with a server that succeeded.
const tlsConnected = "TLS connected: "

// handleLine updates the tunnel from a line of stunnel's log.
func (t *tunnel) handleLine(l line, now time.Time) {
	if l.thread == mainThread {
		t.handleMainLine(l, now)
		return
	}
	if strings.HasPrefix(l.text, tlsConnected) {
		t.connectionAccepted()
	}
	t.handleConnLine(l, now)
}

// handleMainLine tracks starts and reloads.
func (t *tunnel) handleMainLine(l line, now time.Time) {
	switch {
	case strings.HasPrefix(l.text, "Reading configuration from"):
		t.errorLines = nil
	case l.text == "Configuration successful":
		if t.phase == phaseStarting || t.phase == phaseReloading {
			t.accepted, t.lastGood = true, t.attempted
			t.deadline = now.Add(readyTimeout)
		}
	case strings.HasPrefix(l.text, "Service [") && strings.Contains(l.text, " bound to "):
		// This ends a reload. After a start, stunnel does not handle signals yet.
		if t.phase == phaseReloading {
			t.configApplied()
		}
	case strings.HasPrefix(l.text, "Accepting new connections"):
		if t.phase == phaseStarting {
			t.configApplied()
		}
	case l.text == configurationFailed:
		// After a refused reload, stunnel keeps the previous configuration. In a start, stunnel exits, and
		// exited records the refusal.
		if t.phase == phaseReloading {
			t.configRefused(strings.Join(t.shownErrors(), "; "), now)
			t.phase = phaseRunning
		}
	case reasonOf(l.text) == tunnelspec.ReasonExhausted:
		// stunnel closed a new connection for want of memory or descriptors. It lives on in that state.
		t.rejected++
		t.setProcessProblem(tunnelspec.ReasonExhausted, l.text, now)
	case l.level == slog.LevelError && len(t.errorLines) < maxErrorLines:
		t.errorLines = append(t.errorLines, l.text)
	}
}

// shownErrors are the first error lines of this start or reload. Those of OpenSSL's error queue, which name
// its source files, come last: stunnel 5.74 logs up to seven of them, some about a FIPS provider that nobody
// has asked for, before it says what it could not do.
func (t *tunnel) shownErrors() []string {
	lines := slices.Clone(t.errorLines)
	slices.SortStableFunc(lines, func(a, b string) int { return rankOfError(a) - rankOfError(b) })
	return lines[:min(len(lines), shownErrorLines)]
}

func rankOfError(line string) int {
	switch {
	case strings.Contains(line, "/dso/"), strings.Contains(line, "name=fips"):
		return 2
	case strings.Contains(line, "@../"):
		return 1
	}
	return 0
}

// handleConnLine tracks connections and their problems. Of each connection it counts the first problem
// only, which causes the later ones. Failed connects count once for each address.
func (t *tunnel) handleConnLine(l line, now time.Time) {
	tracked := t.conns[l.thread]
	switch {
	case strings.HasPrefix(l.text, "s_connect: connected "):
		address, err := netip.ParseAddrPort(bracketed(strings.TrimPrefix(l.text, "s_connect: connected ")))
		if err == nil && len(t.conns) < maxConns {
			t.conns[l.thread] = conn{server: address, counted: tracked.counted}
		}
	case strings.HasPrefix(l.text, tlsConnected):
		t.reported.Remote, t.reported.RemoteAt, t.reported.Connection = tracked.server, now, nil
		if tracked.established = tracked.server.IsValid(); tracked.established {
			t.conns[l.thread] = tracked
		}
	case strings.HasPrefix(l.text, "Connection closed") || strings.HasPrefix(l.text, "Connection reset"):
		delete(t.conns, l.thread)
	default:
		t.record(l, reasonOf(l.text), now)
	}
}

func (t *tunnel) record(l line, reason tunnelspec.Reason, now time.Time) {
	if reason == "" {
		return
	}
	tracked := t.conns[l.thread]
	if !strings.HasPrefix(l.text, "s_connect: ") {
		if tracked.counted {
			return
		}
		tracked.counted = true
		if len(t.conns) < maxConns {
			t.conns[l.thread] = tracked
		}
	}
	t.reported.Connection = &tunnelspec.Problem{Reason: reason, Message: l.text, At: now}
	t.reported.Problems[reason]++
}

// servers returns the servers of established connections, sorted.
func (t *tunnel) servers() []netip.AddrPort {
	var servers []netip.AddrPort
	for _, c := range t.conns {
		if c.established && !slices.Contains(servers, c.server) {
			servers = append(servers, c.server)
		}
	}
	slices.SortFunc(servers, netip.AddrPort.Compare)
	return servers
}

// bracketed adds the brackets of an IPv6 address, which stunnel logs without.
func bracketed(hostPort string) string {
	colon := strings.LastIndexByte(hostPort, ':')
	if colon < 0 || strings.Count(hostPort, ":") == 1 {
		return hostPort
	}
	return "[" + hostPort[:colon] + "]" + hostPort[colon:]
}

// unreadableFiles returns a message for each file of a specification that this process, and so
// stunnel, cannot read. stunnel's messages do not name the file, and the agent may be able to read
// it: it runs in another container.
func unreadableFiles(t tunnelspec.Tunnel) []string {
	var messages []string
	for _, file := range []struct{ option, path string }{{"CAfile", t.CAFile}, {"cert", t.Cert}, {"key", t.Key}} {
		if file.path == "" {
			continue
		}
		if err := checkReadable(file.path); err != nil {
			messages = append(messages, fmt.Sprintf("%s %s: %v", file.option, file.path, err))
		}
	}
	return messages
}

func checkReadable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("no such file in the supervisor's container; mount it into supervisor and agent")
	case err == nil && !info.Mode().IsRegular():
		return errors.New("not a regular file") // opening a pipe would block
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return file.Close()
}

// patterns match the log lines of stunnel 5.50 to 5.76 with OpenSSL 1.1 and 3. The first match wins.
var patterns = []struct {
	reason tunnelspec.Reason
	lines  *regexp.Regexp
}{
	{tunnelspec.ReasonExhausted, regexp.MustCompile(`^Connection rejected: `)},
	{tunnelspec.ReasonConnectRefused, regexp.MustCompile(`^s_connect: .*(Connection refused|Connection reset)`)},
	{tunnelspec.ReasonConnectTimeout, regexp.MustCompile(`^s_connect: .*(TIMEOUTconnect exceeded|Connection timed out)`)},
	// An argument is invalid for a connection from a loopback address to another network.
	{tunnelspec.ReasonConnectUnreachable, regexp.MustCompile(`^s_connect: .*(unreachable|No route to host|Invalid argument)`)},
	{tunnelspec.ReasonCertificateHostMismatch, regexp.MustCompile(`^CERT: (Subject checks failed|No matching host name found)`)},
	{tunnelspec.ReasonCertificateExpired, regexp.MustCompile(`^CERT: Pre-verification error: .*(expired|not yet valid)`)},
	{tunnelspec.ReasonCertificateUntrusted, regexp.MustCompile(`^(CERT: Pre-verification error: |SSL_connect.*certificate verify failed)`)},
	{tunnelspec.ReasonTLSVersion, regexp.MustCompile(`^SSL_connect.*(alert protocol version|unsupported protocol)`)},
	{tunnelspec.ReasonNotTLS, regexp.MustCompile(`^SSL_connect.*(wrong version number|packet length too long|http request)`)},
	// TLS 1.3 servers verify the client's certificate after the client has finished the handshake.
	{tunnelspec.ReasonClientCertificateRejected, regexp.MustCompile(`^SSL_(connect|read|write).*alert (certificate|bad certificate|unknown ca|access denied)`)},
	{tunnelspec.ReasonHandshakeTimeout, regexp.MustCompile(`^ssl_start: .*TIMEOUTbusy exceeded`)},
	{tunnelspec.ReasonHandshakeFailed, regexp.MustCompile(`^SSL_connect`)},
	{tunnelspec.ReasonConnectionLost, regexp.MustCompile(`^(TLS fd: |SSL_read|SSL_write)`)},
}

// reasonOf returns "" for a line that reports no problem of a connection.
func reasonOf(text string) tunnelspec.Reason {
	for _, p := range patterns {
		if p.lines.MatchString(text) {
			return p.reason
		}
	}
	return ""
}
