package agent_test

import (
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/node/agent"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/test/support/stunneltest"
)

// onlyInstalled refuses all clients but those with the certificate of a Secret.
func onlyInstalled(config *tls.Config) {
	config.ClientAuth = tls.RequireAnyClientCert
	config.VerifyConnection = func(state tls.ConnectionState) error {
		if state.PeerCertificates[0].Subject.CommonName != "client" {
			return errors.New("another client")
		}
		return nil
	}
}

// TestServerGetsTheInstalledCertificate from stunnel, and from the agent's probes. Without the Secret, the agent says
// which one is missing, and serves all other targets.
func TestServerGetsTheInstalledCertificate(t *testing.T) {
	c, secret := newCluster(t), t.TempDir()
	c.serve("127.1.0.1", onlyInstalled)
	c.mountTarget("127.1.0.2")
	local, other := stunneltest.FreePort(t, "127.0.0.1"), stunneltest.FreePort(t, "127.0.0.1")
	p := c.pod(stunneltest.FreePort(t, "127.0.0.1").String())
	p.startSupervisor()
	p.startAgent(func(o *agent.Options) { o.ProbeInterval, o.ClientCertificateDir = time.Second, secret })
	server := target(int(local.Port()), "127.1.0.1", "")
	server.ClientCertificate = true
	c.publish(tableOf(map[string]ports.Target{"fs-1": server, "fs-2": target(int(other.Port()), "127.1.0.2", "")}))
	if message := p.event("TargetUnusable"); !strings.Contains(message, "fs-1") || !strings.Contains(message, "efs-stunnel-nfs-client") {
		t.Errorf("got %q", message)
	}
	p.until("the other target is served", func() bool { return p.serves(other) == nil })
	certificate, key := stunneltest.NewAuthority(t).ClientFiles(t)
	for name, file := range map[string]string{"tls.crt": certificate, "tls.key": key} {
		if err := os.Rename(file, filepath.Join(secret, name)); err != nil {
			t.Fatal(err)
		}
	}
	p.until("the server takes both", func() bool { return p.up() && p.answers(local) == nil })
}
