package agent_test

import (
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes/fake"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/test/support/stunneltest"
)

const accessPointTunnel = "fs-1.fsap-1"

// nearExpiry is a lifetime of credentials after which they are renewed within seconds.
const nearExpiry = 10*time.Minute + time.Second

// oneAccessPoint is a pod that serves fs-1 and its access point.
func oneAccessPoint(t *testing.T) (p *pod, server *authenticating, root, local netip.AddrPort) {
	t.Helper()
	c := newCluster(t)
	server = c.authenticatingTarget("127.1.0.1", false)
	root, local = stunneltest.FreePort(t, "127.0.0.1"), stunneltest.FreePort(t, "127.0.0.1")
	fs := target(int(root.Port()), "127.1.0.1", "")
	fs.AccessPoints = map[string]ports.AccessPoint{"fsap-1": {Port: int(local.Port())}}
	p = c.pod(stunneltest.FreePort(t, "127.0.0.1").String())
	p.startSupervisor()
	p.startAgent(nil)
	c.publish(tableOf(map[string]ports.Target{"fs-1": fs}))
	p.until("the access point is up", func() bool { return p.accessPointUp() && p.ready() })
	return p, server, root, local
}

func (p *pod) accessPointUp() bool {
	value, ok := p.metric("efs_stunnel_node_tunnel_up", accessPointTunnel)
	return ok && value == 1
}

func TestAccessPointHasATunnelOfItsOwn(t *testing.T) {
	p, server, root, local := oneAccessPoint(t)
	if err := p.serves(local); err != nil {
		t.Errorf("through the access point's tunnel: %v", err)
	}
	p.until("the file system's own tunnel answers", func() bool { return p.answers(root) == nil })
	if !server.saw(clientIdentity{"fs-1", "fsap-1", ""}, 0) || !server.saw(clientIdentity{}, 0) {
		t.Errorf("the server saw %v, want the access point, and a client without a certificate", server.clients)
	}
	text, err := p.dir.Key().Read()
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		t.Fatalf("the key is %q", text)
	}
	if _, err := x509.ParsePKCS8PrivateKey(block.Bytes); err != nil {
		t.Errorf("the key: %v", err)
	}
	if info, err := os.Stat(p.dir.Key().Path()); err != nil || info.Mode() != 0o400 {
		t.Errorf("got %v, %v; want a key that only its owner reads", info, err)
	}
	if until, ok := p.metric("efs_stunnel_node_client_certificate_expiration_timestamp_seconds", accessPointTunnel); !ok || until < float64(time.Now().Unix()) {
		t.Errorf("the metric has the expiration time %v", until)
	}
	if words := p.log.String(); !strings.Contains(words, "fileSystem=fs-1 accessPoint=fsap-1") {
		t.Errorf("the log lacks the access point:\n%s", words)
	}
}

func TestCertificateIsRemovedWithItsAccessPoint(t *testing.T) {
	p, _, root, local := oneAccessPoint(t)
	fs := target(int(root.Port()), "127.1.0.1", "")
	fs.Port = int(local.Port()) // so that the tunnel is removed without a grace period
	p.publish(tableOf(map[string]ports.Target{"fs-1": fs}))
	p.until("certificate and metric are gone", func() bool {
		_, exported := p.metric("efs_stunnel_node_client_certificate_failing", accessPointTunnel)
		_, err := os.Stat(p.dir.Certificate(accessPointTunnel).Path())
		return !exported && os.IsNotExist(err)
	})
}

// The old pod must not end before the new one, which starts without a key, has a certificate.
func TestUpgradeWaitsForTheCertificate(t *testing.T) {
	first, _, _, local := oneAccessPoint(t)
	second := first.pod(first.http)
	second.startSupervisor()
	second.startAgent(nil)
	second.until("the new pod is ready", func() bool { return second.agent.Ready() == nil })
	// Once it has seen that it is ready, the tunnel moves to its port. stunnel restarts for that after the specification
	// was written, and so may end the call on the other address.
	standby := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), local.Port())
	serveErr := second.serves(standby)
	spec, err := second.dir.Spec(accessPointTunnel).Read()
	if err != nil {
		t.Fatal(err)
	}
	if isThere := strings.Contains(string(spec), standby.String()); serveErr != nil && isThere {
		t.Errorf("it is ready before its tunnel to the access point is: %v", serveErr)
	}
	before, err := first.dir.Key().Read()
	if err != nil {
		t.Fatal(err)
	}
	if after, err := second.dir.Key().Read(); err != nil || len(after) == 0 || string(after) == string(before) {
		t.Errorf("the new pod has no key of its own (%v)", err)
	}
}

// iamTunnel is a pod that serves fs-1, which requires an IAM identity.
func iamTunnel(t *testing.T, w *credentialSource) (p *pod, server *authenticating, local netip.AddrPort, table ports.Table) {
	t.Helper()
	c := newCluster(t)
	server = c.authenticatingTarget("127.1.0.1", true)
	local = stunneltest.FreePort(t, "127.0.0.1")
	fs := target(int(local.Port()), "127.1.0.1", "")
	fs.IAM = true
	table = tableOf(map[string]ports.Target{"fs-1": fs})
	c.publish(table)
	p = c.pod(stunneltest.FreePort(t, "127.0.0.1").String())
	p.startSupervisor()
	p.startAgent(w.use)
	return p, server, local, table
}

func TestRenewalKeepsConnections(t *testing.T) {
	w := &credentialSource{}
	w.put("FIRST", nearExpiry)
	p, server, local, _ := iamTunnel(t, w)
	p.until("it is up", p.up)
	conn, before := p.hold(local), p.supervised("fs-1")
	if !server.saw(clientIdentity{"fs-1", "", "FIRST"}, 0) {
		t.Fatalf("the server saw %v", server.clients)
	}
	w.put("SECOND", time.Hour)
	p.until("new connections have the new identity", func() bool {
		since := server.connections()
		return p.answers(local) == nil && server.saw(clientIdentity{"fs-1", "", "SECOND"}, since)
	})
	if err := p.call(conn); err != nil {
		t.Errorf("an open connection was cut: %v", err)
	}
	p.until("the supervisor reports the reload, and the tunnel is up", func() bool {
		return p.supervised("fs-1").Reloads > before.Reloads && p.up()
	})
	if after := p.supervised("fs-1"); after.PID != before.PID || after.Reloads != before.Reloads+1 || after.Restarts != 0 {
		t.Errorf("want one reload of the same process: before %+v, after %+v", before, after)
	}
}

func TestTunnelServesWhileItsCredentialsCannotBeRenewed(t *testing.T) {
	w := &credentialSource{}
	w.put("FIRST", nearExpiry)
	p, _, local, _ := iamTunnel(t, w)
	p.until("it is up", p.up)
	conn := p.hold(local)
	w.fail("the role is gone")
	if message := p.event(wellknown.EventClientCertificateFailed); !strings.Contains(message, "fs-1") ||
		!strings.Contains(message, "it serves until") || !strings.Contains(message, "the role is gone") {
		t.Errorf("got %q", message)
	}
	p.until("the metric reports the failure", func() bool {
		failing, ok := p.metric("efs_stunnel_node_client_certificate_failing", "fs-1")
		return ok && failing == 1
	})
	if err := p.serves(local); err != nil {
		t.Errorf("a new connection: %v", err)
	}
	if err := p.call(conn); err != nil {
		t.Errorf("an open connection: %v", err)
	}
	if err := p.agent.Ready(); err != nil {
		t.Errorf("not ready, although all is served: %v", err)
	}
	w.put("SECOND", -time.Minute) // the metadata service returns expired ones while it cannot renew them
	p.until("the metric reports no failure", func() bool {
		failing, ok := p.metric("efs_stunnel_node_client_certificate_failing", "fs-1")
		return ok && failing == 0
	})
	w.fail("the role is gone")
	if message := p.event(wellknown.EventClientCertificateFailed); !strings.Contains(message, "it ended at") {
		t.Errorf("got %q", message)
	}
}

func TestTunnelWithIAMWaitsForCredentials(t *testing.T) {
	w := &credentialSource{}
	w.fail("no credentials")
	p, server, local, table := iamTunnel(t, w)
	other := stunneltest.FreePort(t, "127.0.0.1")
	p.mountTarget("127.1.0.2")
	table.Targets["fs-2"] = target(int(other.Port()), "127.1.0.2", "")
	p.publish(table)
	if message := p.event(wellknown.EventTargetUnusable); !strings.Contains(message, "no credentials") {
		t.Errorf("got %q", message)
	}
	p.until("the other tunnel is up", func() bool {
		value, ok := p.metric("efs_stunnel_node_tunnel_up", "fs-2")
		return ok && value == 1
	})
	p.until("only the certificate is missing, which the old pod of an upgrade may have", func() bool {
		err := p.agent.Ready()
		return err != nil && strings.Contains(err.Error(), "no client certificate yet: fs-1")
	})
	if names, err := p.dir.Names(); err != nil || len(names) != 1 || server.connections() > 0 {
		t.Errorf("got files of %v, %v, and %d connections, want no tunnel without its certificate", names, err, server.connections())
	}
	w.put("FIRST", time.Hour)
	p.until("it answers", func() bool { return p.answers(local) == nil })
	p.until("it is ready", func() bool { return p.agent.Ready() == nil })
}

func TestRestartKeepsKeyAndConnections(t *testing.T) {
	p, _, _, local := oneAccessPoint(t)
	conn := p.hold(local)
	key, err := p.dir.Key().Read()
	if err != nil {
		t.Fatal(err)
	}
	before := p.supervised(accessPointTunnel)
	p.endAgent()
	p.client = fake.NewClientset() // without table and node
	p.startAgent(nil)
	p.until("it is up and ready", func() bool { return p.accessPointUp() && p.agent.Ready() == nil })
	if after := p.supervised(accessPointTunnel); before.PID != after.PID || before.Generation != after.Generation || before.Reloads != after.Reloads {
		t.Errorf("the tunnel was changed: before %+v, after %+v", before, after)
	}
	if again, err := p.dir.Key().Read(); err != nil || string(again) != string(key) {
		t.Errorf("the key has changed (%v)", err)
	}
	p.endAgent()
	if err := os.Remove(p.dir.Key().Path()); err != nil {
		t.Fatal(err)
	}
	p.startAgent(nil)
	p.until("another certificate is in force", func() bool {
		after := p.supervised(accessPointTunnel)
		return after.Generation != before.Generation && after.Listening && p.accessPointUp()
	})
	if err := p.serves(local); err != nil {
		t.Errorf("a new connection: %v", err)
	}
	if err := p.call(conn); err != nil || p.supervised(accessPointTunnel).PID != before.PID {
		t.Errorf("the new key cut the connection: %v", err)
	}
}

func TestCertificateIsRemovedWhenIAMIsTurnedOff(t *testing.T) {
	w := &credentialSource{}
	w.put("FIRST", time.Hour)
	c := newCluster(t)
	server := c.authenticatingTarget("127.1.0.1", false)
	local := stunneltest.FreePort(t, "127.0.0.1")
	fs := target(int(local.Port()), "127.1.0.1", "")
	fs.IAM = true
	c.publish(tableOf(map[string]ports.Target{"fs-1": fs}))
	p := c.pod(stunneltest.FreePort(t, "127.0.0.1").String())
	p.startSupervisor()
	p.startAgent(w.use)
	p.until("it is up", p.up)
	conn := p.hold(local)
	fs.IAM = false
	p.publish(tableOf(map[string]ports.Target{"fs-1": fs}))
	p.until("new connections have no certificate", func() bool {
		since := server.connections()
		return p.answers(local) == nil && server.saw(clientIdentity{}, since)
	})
	if err := p.call(conn); err != nil {
		t.Errorf("an open connection was cut: %v", err)
	}
	if _, err := os.Stat(p.dir.Certificate("fs-1").Path()); !os.IsNotExist(err) {
		t.Errorf("the certificate still exists (%v)", err)
	}
}

// A namespace turns IAM on for a file system that others use, and the node has no credentials.
func TestTunnelContinuesWithoutIAMWhileThereAreNoCredentials(t *testing.T) {
	w := &credentialSource{}
	w.fail("no credentials")
	c := newCluster(t)
	c.authenticatingTarget("127.1.0.1", false)
	moved := c.authenticatingTarget("127.1.0.2", false)
	root, local := stunneltest.FreePort(t, "127.0.0.1"), stunneltest.FreePort(t, "127.0.0.1")
	publish := func(address string, iam bool) {
		fs := target(int(root.Port()), address, "")
		fs.IAM, fs.AccessPoints = iam, map[string]ports.AccessPoint{"fsap-1": {Port: int(local.Port()), IAM: iam}}
		c.publish(tableOf(map[string]ports.Target{"fs-1": fs}))
	}
	publish("127.1.0.1", false)
	p := c.pod(stunneltest.FreePort(t, "127.0.0.1").String())
	p.startSupervisor()
	p.startAgent(w.use)
	p.until("both are up", func() bool { return p.up() && p.accessPointUp() })
	onRoot, onPoint := p.hold(root), p.hold(local)
	publish("127.1.0.1", true)
	for range 2 {
		message := p.event(wellknown.EventClientCertificateFailed)
		if !strings.Contains(message, "the tunnel serves as it did before: ") || !strings.Contains(message, "no credentials") {
			t.Errorf("got %q", message)
		}
	}
	p.endAgent()
	p.startAgent(w.use)
	publish("127.1.0.2", true)
	p.until("new connections use the new mount target with the identity of before", func() bool {
		return p.answers(root) == nil && p.answers(local) == nil &&
			moved.saw(clientIdentity{}, 0) && moved.saw(clientIdentity{"fs-1", "fsap-1", ""}, 0)
	})
	p.until("both are up and ready", func() bool { return p.up() && p.accessPointUp() && p.ready() })
	if _, unusable := p.metric("efs_stunnel_node_target_unusable"); unusable {
		t.Error("a target is reported as unusable")
	}
	for _, conn := range []net.Conn{onRoot, onPoint} {
		if err := p.call(conn); err != nil {
			t.Errorf("an open connection was cut: %v", err)
		}
	}
	w.put("FIRST", time.Hour)
	p.until("new connections have the IAM identity", func() bool {
		return p.answers(root) == nil && p.answers(local) == nil &&
			moved.saw(clientIdentity{"fs-1", "", "FIRST"}, 0) && moved.saw(clientIdentity{"fs-1", "fsap-1", "FIRST"}, 0)
	})
}
