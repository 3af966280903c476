package agent_test

import (
	"crypto/tls"
	"os"
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/test/support/stunneltest"
)

// TestChangedRootsAreReadAgain by stunnel that runs, whose connections stay open.
func TestChangedRootsAreReadAgain(t *testing.T) {
	p, local, near, far := oneTunnel(t)
	conn := p.hold(local)
	reloads := p.supervised("fs-1").Reloads
	next := stunneltest.NewAuthority(t)
	if err := os.Rename(next.File, p.authority.File); err != nil {
		t.Fatal(err)
	}
	p.until("stunnel is reloaded", func() bool { return p.supervised("fs-1").Reloads > reloads })
	if err := p.call(conn); err != nil {
		t.Errorf("over the open connection: %v", err)
	}
	far.refuse() // so that no failover hides what the only mount target needs
	near.refuse()
	near.config = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{next.Valid(t, hostName)}}
	near.listen()
	p.until("a server with a certificate of the new authority answers", func() bool { return p.answers(local) == nil })
	if got := p.supervised("fs-1").Restarts; got > 0 {
		t.Errorf("got %d restarts, want none", got)
	}
}

// TestTargetWithItsOwnAuthority is served by stunnel and judged by the agent's probes with that authority only.
func TestTargetWithItsOwnAuthority(t *testing.T) {
	p, local, near, far := oneTunnel(t)
	own := stunneltest.NewAuthority(t)
	text, err := os.ReadFile(own.File)
	if err != nil {
		t.Fatal(err)
	}
	before := target(int(local.Port()), "127.1.0.1", "127.1.0.2")
	after := before
	after.CACertificates = string(text)
	p.publish(tableOf(map[string]ports.Target{"fs-1": after}))
	p.until("stunnel has read it", func() bool { return p.supervised("fs-1").Reloads > 0 })
	near.cut()
	far.cut()
	if message := p.event(wellknown.EventTunnelUnhealthy); !strings.Contains(message, "test authority") {
		t.Errorf("got %q, want the subject of the authority that the server's certificate is not from", message)
	}
	for _, server := range []*mountTarget{near, far} {
		server.refuse()
		server.config = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own.Valid(t, hostName)}}
		server.listen()
		server.cut()
	}
	p.until("a server with a certificate of its own authority answers", func() bool { return p.answers(local) == nil && p.up() })
	p.publish(tableOf(map[string]ports.Target{"fs-1": before}))
	p.until("it is refused with the agent's roots, and the file of its own is removed", func() bool {
		text, err := p.dir.Authorities("fs-1").Read()
		return err == nil && text == nil && p.answers(local) != nil
	})
}

// cut closes the open connections.
func (m *mountTarget) cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, conn := range m.conns {
		conn.Close()
	}
}
