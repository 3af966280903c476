package certificates_test

import (
	"crypto/tls"
	"os"
	"testing"
	"time"
)

func TestKeyIsMadeOnTheNodeAndKept(t *testing.T) {
	inBubble(t, func(n *node) {
		for _, before := range []string{"", "nonsense", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"} {
			if err := n.dir.Key().Write([]byte(before)); err != nil {
				t.Fatal(err)
			}
			r, end := n.start(accessPointOnly())
			info, err := os.Stat(n.dir.Key().Path())
			if err != nil || info.Mode() != 0o400 {
				t.Errorf("got %v, %v; want a file of mode 0400", info, err)
			}
			if _, err := tls.LoadX509KeyPair(r.Certificates()[accessPointTunnel].File, n.dir.Key().Path()); err != nil {
				t.Errorf("key and certificate are no pair: %v", err)
			}
			end()
		}
		made, err := n.dir.Key().Read()
		if err != nil {
			t.Fatal(err)
		}
		_, end := n.start(accessPointOnly())
		end()
		if again, err := n.dir.Key().Read(); err != nil || string(again) != string(made) {
			t.Errorf("a restart makes another key (%v)", err)
		}
	})
}

func TestRemovedFilesAreRestored(t *testing.T) {
	inBubble(t, func(n *node) {
		r, _ := n.start(accessPointOnly())
		before := r.Certificates()[accessPointTunnel].Sum
		for _, file := range []string{n.dir.Key().Path(), n.dir.Certificate(accessPointTunnel).Path()} {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
		after(time.Minute)
		n.contents(r, accessPointTunnel)
		if _, err := tls.LoadX509KeyPair(n.dir.Certificate(accessPointTunnel).Path(), n.dir.Key().Path()); err != nil || r.Certificates()[accessPointTunnel].Sum != before {
			t.Errorf("they are not as they were: %v", err)
		}
	})
}

// An error in writing must neither end the renewer nor have it retry without a delay.
func TestFolderCannotBeWritten(t *testing.T) {
	inBubble(t, func(n *node) {
		if err := os.Remove(n.dir.Key().Path()); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(n.dir.Key().Path(), 0o700); err != nil {
			t.Fatal(err)
		}
		r, _ := n.start(accessPointOnly())
		if got := r.Certificates()[accessPointTunnel]; got.Sum != "" || got.Problem == "" {
			t.Errorf("got %+v", got)
		}
		if err := os.Remove(n.dir.Key().Path()); err != nil {
			t.Fatal(err)
		}
		n.writeKey()
		after(time.Minute)
		n.contents(r, accessPointTunnel)
	})
}
