package confdir_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const tunnelName = "fs-1.fsap-2"

func modeOf(t *testing.T, file string) os.FileMode {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

func TestKeyIsReadableByOwnerOnly(t *testing.T) {
	dir, folder := open(t)
	if got, err := dir.Key().Read(); err != nil || got != nil {
		t.Errorf("got %q, %v; want no key at first", got, err)
	}
	for _, content := range []string{"one", "one", "two"} { // the file is read-only after the first
		if err := dir.Key().Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
		if got, err := dir.Key().Read(); err != nil || string(got) != content {
			t.Errorf("got %q, %v; want %q", got, err, content)
		}
	}
	if dir.Key().Path() != filepath.Join(folder, "stunnel.conf-client.key") {
		t.Errorf("the key is at %s", dir.Key().Path())
	}
	if mode := modeOf(t, dir.Key().Path()); mode != 0o400 {
		t.Errorf("the key has mode %o", mode)
	}
}

func TestRemoveTunnelRemovesCertificate(t *testing.T) {
	dir, folder := open(t)
	if err := dir.Certificate(tunnelName).Write([]byte("certificate")); err != nil {
		t.Fatal(err)
	}
	if err := dir.Spec(tunnelName).Write([]byte("configuration")); err != nil {
		t.Fatal(err)
	}
	if got, err := dir.Certificate(tunnelName).Read(); err != nil || string(got) != "certificate" {
		t.Errorf("got %q, %v", got, err)
	}
	if mode := modeOf(t, filepath.Join(folder, "stunnel.conf-client.fs-1.fsap-2.pem")); mode != 0o600 {
		t.Errorf("the certificate has mode %o", mode)
	}
	names, err := dir.Names()
	if diff := cmp.Diff([]string{tunnelName}, names); diff != "" || err != nil {
		t.Errorf("tunnels (-want +got), %v:\n%s", err, diff)
	}
	for range 2 {
		if err := dir.Remove(tunnelName); err != nil {
			t.Errorf("removing: %v", err)
		}
	}
	if got, err := dir.Certificate(tunnelName).Read(); err != nil || got != nil {
		t.Errorf("got %q, %v after the tunnel was removed", got, err)
	}
}

func TestCertificateOfInvalidNameFails(t *testing.T) {
	dir, _ := open(t)
	const bad = "../fs-1"
	if err := dir.Certificate(bad).Write(nil); err == nil {
		t.Errorf("%q was written", bad)
	}
	if _, err := dir.Certificate(bad).Read(); err == nil {
		t.Errorf("%q was read", bad)
	}
	if err := dir.Certificate(bad).Remove(); err == nil {
		t.Errorf("%q was removed", bad)
	}
}
