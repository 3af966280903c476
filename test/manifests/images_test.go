package manifests

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestImagesListTheirPackages: a scanner reports a vulnerability of OpenSSL only if the image lists
// OpenSSL. The test uses the shell for stunnel: any program with libraries will do.
func TestImagesListTheirPackages(t *testing.T) {
	if _, err := exec.LookPath("dpkg-query"); err != nil {
		t.Skip("this is no Debian")
	}
	out := t.TempDir()
	if output, err := exec.CommandContext(t.Context(), "../../hack/images/collect", out, "/bin/sh").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	for image, want := range map[string][]string{
		"certificates": {"base-files", "ca-certificates"},
		"stunnel":      {"base-files", "ca-certificates", "dash", "libc6", "libgcc-s1"},
	} {
		entries, err := os.ReadDir(filepath.Join(out, image, "var/lib/dpkg/status.d"))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, entry := range entries {
			got = append(got, entry.Name())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("packages of %s mismatch (-want +got):\n%s", image, diff)
		}
	}
	for _, file := range []string{
		"certificates/etc/os-release", "certificates/etc/ssl/certs/ca-certificates.crt", "certificates/var/lib/dpkg/status.d/ca-certificates",
		"stunnel/etc/os-release", "stunnel/usr/local/bin/stunnel", "stunnel/etc/efs-stunnel/amazon-roots.pem", "stunnel/var/lib/dpkg/status.d/libc6",
	} {
		if info, err := os.Stat(filepath.Join(out, file)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", file, err)
		}
	}
}
