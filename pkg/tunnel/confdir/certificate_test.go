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
	if got, err := dir.Key(); err != nil || got != nil {
		t.Errorf("got %q, %v; want no key at first", got, err)
	}
	for _, content := range []string{"one", "one", "two"} { // the file is read-only after the first
		if err := dir.WriteKey([]byte(content)); err != nil {
			t.Fatal(err)
		}
		if got, err := dir.Key(); err != nil || string(got) != content {
			t.Errorf("got %q, %v; want %q", got, err, content)
		}
	}
	if dir.KeyFile() != filepath.Join(folder, "stunnel.conf-client.key") {
		t.Errorf("the key is at %s", dir.KeyFile())
	}
	if mode := modeOf(t, dir.KeyFile()); mode != 0o400 {
		t.Errorf("the key has mode %o", mode)
	}
}

func TestRemoveTunnelRemovesCertificate(t *testing.T) {
	dir, folder := open(t)
	if err := dir.WriteCertificate(tunnelName, []byte("certificate")); err != nil {
		t.Fatal(err)
	}
	if _, err := dir.Write(tunnelName, []byte("configuration")); err != nil {
		t.Fatal(err)
	}
	if got, err := dir.Certificate(tunnelName); err != nil || string(got) != "certificate" {
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
	if got, err := dir.Certificate(tunnelName); err != nil || got != nil {
		t.Errorf("got %q, %v after the tunnel was removed", got, err)
	}
}

func TestCertificateOfInvalidNameFails(t *testing.T) {
	dir, _ := open(t)
	const bad = "../fs-1"
	if err := dir.WriteCertificate(bad, nil); err == nil {
		t.Errorf("%q was written", bad)
	}
	if _, err := dir.Certificate(bad); err == nil {
		t.Errorf("%q was read", bad)
	}
	if err := dir.RemoveCertificate(bad); err == nil {
		t.Errorf("%q was removed", bad)
	}
}
