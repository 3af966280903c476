package docs

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/efs/topology"
)

const partitions = "docs/reference/partitions.md"

// TestPartitionsAreThoseOfThePrograms: the page has each suffix that the programs know, with a region.
func TestPartitionsAreThoseOfThePrograms(t *testing.T) {
	source, err := os.ReadFile(filepath.Join(root, "pkg/efs/topology/network.go"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"amazonaws.com"} // GovCloud's, too
	for _, pair := range regexp.MustCompile(`\{"[a-z-]+-", "([a-z0-9.-]+)"\}`).FindAllStringSubmatch(string(source), -1) {
		want = append(want, pair[1])
	}
	seen := map[string]bool{}
	for _, row := range rows(readPage(t, partitions).text) {
		if len(row) != 4 {
			continue // an authority
		}
		region, suffix := codes(row[1])[0], codes(row[2])[0]
		if got := topology.DNSSuffix(region); got != suffix {
			t.Errorf("%s: the page has %s, the programs %s", region, suffix, got)
		}
		seen[strings.TrimPrefix(suffix, "efs."+region+".")] = true
	}
	var got []string
	for suffix := range seen {
		got = append(got, suffix)
	}
	expectSame(t, "suffixes", want, got)
}

// TestRootsAreThoseOfTheImage compares the page with the script that collects the image's authorities and,
// where Debian's package is installed, with the certificates.
func TestRootsAreThoseOfTheImage(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(root, "hack/images/collect"))
	if err != nil {
		t.Fatal(err)
	}
	patterns := regexp.MustCompile(`[\w\[\]-]+\.crt\b`).FindAllString(strings.ReplaceAll(string(script), "ca-certificates.crt", ""), -1)
	found := 0
	for _, row := range rows(readPage(t, partitions).text) {
		if len(row) != 3 {
			continue // a partition
		}
		found++
		file := strings.ReplaceAll(row[0], " ", "_") + ".crt"
		if !matchesOne(patterns, file) {
			t.Errorf("the image has no %s: %q", file, patterns)
		}
		checkRoot(t, filepath.Join("/usr/share/ca-certificates/mozilla", file), row[0], row[2])
	}
	if len(patterns) != 2 || found != 5 {
		t.Errorf("the page has %d authorities, the script %q", found, patterns)
	}
}

func matchesOne(patterns []string, file string) bool {
	for _, pattern := range patterns {
		if ok, err := path.Match(pattern, file); ok && err == nil {
			return true
		}
	}
	return false
}

// checkRoot expects a name, and a date to which the certificate is valid, of a file that exists.
func checkRoot(t *testing.T, file, name, until string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Logf("not compared with the certificate: %v", err)
		return
	}
	block, _ := pem.Decode(text)
	if block == nil {
		t.Fatalf("%s is not PEM", file)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if got := certificate.NotAfter.UTC().Format("2006-01-02"); certificate.Subject.CommonName != name || got != until || !certificate.IsCA {
		t.Errorf("%s is of %s until %s, on the page %s until %s", file, certificate.Subject.CommonName, got, name, until)
	}
}
