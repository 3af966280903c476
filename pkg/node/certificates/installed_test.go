package certificates_test

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gnuthought.com/efs-stunnel/pkg/node/clientcert"
	"gnuthought.com/efs-stunnel/test/support/stunneltest"
)

const serverTunnel = "nfs"

// install writes a certificate that ends in an hour into the folder of the Secret.
func (n *node) install() {
	n.Helper()
	certificate, key := stunneltest.NewAuthority(n).ClientFiles(n)
	for name, file := range map[string]string{"tls.crt": certificate, "tls.key": key} {
		text, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(filepath.Join(n.secret, name), text, 0o600)
		}
		if err != nil {
			n.Fatal(err)
		}
	}
}

func TestInstalledCertificateIsRead(t *testing.T) {
	inBubble(t, func(n *node) {
		r, _ := n.start(map[string]clientcert.Identity{serverTunnel: {FileSystem: serverTunnel, Installed: true}})
		if got := r.Certificates()[serverTunnel]; got.Sum != "" || !strings.Contains(got.Problem, "efs-stunnel-nfs-client") {
			t.Errorf("without the Secret: got %+v, want a problem that names it", got)
		}
		n.install()
		after(time.Minute)
		first := r.Certificates()[serverTunnel]
		if first.Problem != "" || time.Until(first.Until) > time.Hour || first.File != first.Key {
			t.Errorf("got %+v, want the certificate and its end", first)
		}
		if _, err := tls.LoadX509KeyPair(first.File, first.Key); err != nil {
			t.Error(err)
		}
		before := n.changes.Load()
		after(10 * time.Minute)
		if now := n.changes.Load(); now != before {
			t.Errorf("%d changes while the Secret stayed as it was", now-before)
		}
		n.install()
		after(2 * time.Minute)
		if got := r.Certificates()[serverTunnel]; got.Sum == first.Sum || got.Problem != "" {
			t.Errorf("got %+v after %+v, want the renewed certificate", got, first)
		}
	})
}

// TestEndedInstalledCertificateIsAProblem: it stays in use, because open connections go on.
func TestEndedInstalledCertificateIsAProblem(t *testing.T) {
	inBubble(t, func(n *node) {
		n.install()
		r, _ := n.start(map[string]clientcert.Identity{serverTunnel: {FileSystem: serverTunnel, Installed: true}})
		first := r.Certificates()[serverTunnel]
		after(2 * time.Hour)
		got := r.Certificates()[serverTunnel]
		if !strings.Contains(got.Problem, "CN=client") || !strings.Contains(got.Problem, "ended at") || got.Sum == "" || got.Sum != first.Sum {
			t.Errorf("got %+v after %+v", got, first)
		}
		n.install()
		synctest.Wait()
		after(2 * time.Minute)
		if got := r.Certificates()[serverTunnel]; got.Problem != "" || got.Sum == first.Sum {
			t.Errorf("got %+v, want the new one", got)
		}
	})
}
