package agent_test

import (
	"crypto/tls"
	"os"
	"testing"

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
