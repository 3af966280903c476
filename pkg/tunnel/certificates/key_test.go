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
			if err := n.dir.WriteKey([]byte(before)); err != nil {
				t.Fatal(err)
			}
			k, end := n.start(onlyPoint())
			info, err := os.Stat(n.dir.KeyFile())
			if err != nil || info.Mode() != 0o400 {
				t.Errorf("got %v, %v; want a file of mode 0400", info, err)
			}
			if _, err := tls.LoadX509KeyPair(k.Held()[point].File, n.dir.KeyFile()); err != nil {
				t.Errorf("key and certificate are no pair: %v", err)
			}
			end()
		}
		made, err := n.dir.Key()
		if err != nil {
			t.Fatal(err)
		}
		_, end := n.start(onlyPoint())
		end()
		if again, err := n.dir.Key(); err != nil || string(again) != string(made) {
			t.Errorf("a restart makes another key (%v)", err)
		}
	})
}

func TestLostFilesComeBack(t *testing.T) {
	inBubble(t, func(n *node) {
		k, _ := n.start(onlyPoint())
		before := k.Held()[point].Sum
		for _, file := range []string{n.dir.KeyFile(), n.dir.CertificateFile(point)} {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
		after(time.Minute)
		n.contents(k, point)
		if _, err := tls.LoadX509KeyPair(n.dir.CertificateFile(point), n.dir.KeyFile()); err != nil || k.Held()[point].Sum != before {
			t.Errorf("they are not as they were: %v", err)
		}
	})
}

// A folder that cannot be written to must not stop the keeper, nor make it run hot.
func TestFolderIsGone(t *testing.T) {
	inBubble(t, func(n *node) {
		if err := os.Remove(n.dir.KeyFile()); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(n.dir.KeyFile(), 0o700); err != nil {
			t.Fatal(err)
		}
		k, _ := n.start(onlyPoint())
		if held := k.Held()[point]; held.Sum != "" || held.Problem == "" {
			t.Errorf("got %+v", held)
		}
		if err := os.Remove(n.dir.KeyFile()); err != nil {
			t.Fatal(err)
		}
		n.writeKey()
		after(time.Minute)
		n.contents(k, point)
	})
}
