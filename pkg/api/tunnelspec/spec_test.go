package tunnelspec_test

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
)

func addresses(texts ...string) []netip.AddrPort {
	var all []netip.AddrPort
	for _, text := range texts {
		all = append(all, netip.MustParseAddrPort(text))
	}
	return all
}

// plain returns a valid tunnel.
func plain() tunnelspec.Tunnel {
	return tunnelspec.Tunnel{
		Name: "fs-34a3p3", Accept: netip.MustParseAddrPort("127.0.0.1:20490"),
		Connect:   addresses("10.0.0.4:2049", "[2001:db8::4]:2049"),
		CheckHost: "fs-34a3p3.efs.us-east-1.amazonaws.com",
		CAFile:    "/etc/efs-stunnel/amazon-roots.pem",
	}
}

var sameAddresses = cmpopts.EquateComparable(netip.AddrPort{})

func TestEncodeAndDecode(t *testing.T) {
	withCertificate := plain()
	withCertificate.Cert, withCertificate.Key, withCertificate.CertSum = "/a.pem", "/a.key", strings.Repeat("0a", 32)
	withCertificate.Restart, withCertificate.CASum = 7, strings.Repeat("1b", 32)
	for name, want := range map[string]tunnelspec.Tunnel{"plain": plain(), "with a certificate": withCertificate} {
		text, err := tunnelspec.Encode(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := tunnelspec.Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, sameAddresses); diff != "" {
			t.Errorf("%s: mismatch (-want +got):\n%s", name, diff)
		}
		again, err := tunnelspec.Encode(got)
		if err != nil || tunnelspec.Generation(again) != tunnelspec.Generation(text) {
			t.Errorf("%s: got %q and %v, want the same bytes again", name, again, err)
		}
	}
	if tunnelspec.Generation(nil) != "" {
		t.Error("nil has a generation")
	}
}

func TestInvalidTextFailsDecode(t *testing.T) {
	text, err := tunnelspec.Encode(plain())
	if err != nil {
		t.Fatal(err)
	}
	good := strings.TrimSpace(string(text))
	for name, tt := range map[string]struct{ text, want string }{
		"empty":                {"", "decoding"},
		"not JSON":             {"; restart 1", "decoding"},
		"null":                 {"null", "name"},
		"two values":           {good + good, "more than one"},
		"truncated":            {good[:len(good)/2], "decoding"},
		"unknown field":        {strings.Replace(good, `{`, `{"verifyChain":false,`, 1), "verifyChain"},
		"host name as address": {strings.Replace(good, "127.0.0.1:20490", "localhost:20490", 1), "decoding"},
		"forbidden address":    {strings.Replace(good, "127.0.0.1:20490", "0.0.0.0:20490", 1), "accept"},
	} {
		if got, err := tunnelspec.Decode([]byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) || got.Name != "" {
			t.Errorf("%s: got %+v and %v, want an error that names %s", name, got, err, tt.want)
		}
	}
}

// FuzzDecode checks that what Decode accepts survives Encode and Decode.
func FuzzDecode(f *testing.F) {
	text, err := tunnelspec.Encode(plain())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"name":"fs-1\n[evil]","accept":"[::1]:1","connect":["10.0.0.1:1"],"checkHost":"a","caFile":"/a"}`))
	f.Add([]byte(`{"name":"fs-1","accept":"127.0.0.1:1","connect":["10.0.0.1:1"],"checkHost":"a","caFile":"/a","restart":-1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		tunnel, err := tunnelspec.Decode(text)
		if err != nil {
			return
		}
		again, err := tunnelspec.Encode(tunnel)
		if err != nil {
			t.Fatalf("encoding the decoded %+v: %v", tunnel, err)
		}
		got, err := tunnelspec.Decode(again)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tunnel, got, sameAddresses); diff != "" {
			t.Errorf("mismatch (-want +got):\n%s", diff)
		}
	})
}

func TestInvalidFieldFailsEncode(t *testing.T) {
	tests := map[string]struct {
		spoil func(*tunnelspec.Tunnel)
		want  string // in the error
	}{
		"name with a line break":     {func(t *tunnelspec.Tunnel) { t.Name = "fs-1\n[evil]" }, "name"},
		"name with a bracket":        {func(t *tunnelspec.Tunnel) { t.Name = "fs-1]" }, "name"},
		"name ends in a line break":  {func(t *tunnelspec.Tunnel) { t.Name = "fs-1\n" }, "name"},
		"name with a directory":      {func(t *tunnelspec.Tunnel) { t.Name = "../fs-1" }, "name"},
		"name of a status file":      {func(t *tunnelspec.Tunnel) { t.Name = "status.json" }, "name"},
		"name of another alphabet":   {func(t *tunnelspec.Tunnel) { t.Name = "fs-١" }, "name"},
		"no name":                    {func(t *tunnelspec.Tunnel) { t.Name = "" }, "name"},
		"open to the network":        {func(t *tunnelspec.Tunnel) { t.Accept = netip.MustParseAddrPort("0.0.0.0:20490") }, "accept"},
		"on the node's address":      {func(t *tunnelspec.Tunnel) { t.Accept = netip.MustParseAddrPort("10.0.0.1:20490") }, "accept"},
		"no port":                    {func(t *tunnelspec.Tunnel) { t.Accept = netip.MustParseAddrPort("127.0.0.1:0") }, "accept"},
		"no accept address":          {func(t *tunnelspec.Tunnel) { t.Accept = netip.AddrPort{} }, "accept"},
		"no connect addresses":       {func(t *tunnelspec.Tunnel) { t.Connect = nil }, "connect"},
		"connect without an address": {func(t *tunnelspec.Tunnel) { t.Connect = []netip.AddrPort{{}} }, "connect 1"},
		"connect to a zone":          {func(t *tunnelspec.Tunnel) { t.Connect = addresses("10.0.0.1:1", "[fe80::1%eth0]:2049") }, "connect 2"},
		"connect to port 0":          {func(t *tunnelspec.Tunnel) { t.Connect = addresses("10.0.0.1:0") }, "connect 1"},
		"too many addresses":         {func(t *tunnelspec.Tunnel) { t.Connect = make([]netip.AddrPort, 33) }, "connect has 33"},
		"host with a comment":        {func(t *tunnelspec.Tunnel) { t.CheckHost = "a.example;b" }, "host name"},
		"host with a line break":     {func(t *tunnelspec.Tunnel) { t.CheckHost = "a.example\nverifyChain = no" }, "host name"},
		"host with a space":          {func(t *tunnelspec.Tunnel) { t.CheckHost = "a.example b" }, "host name"},
		"host with a zero byte":      {func(t *tunnelspec.Tunnel) { t.CheckHost = "a.example\x00" }, "host name"},
		"host is a wildcard":         {func(t *tunnelspec.Tunnel) { t.CheckHost = "*.example.com" }, "host name"},
		"host is an address":         {func(t *tunnelspec.Tunnel) { t.CheckHost = "10.0.0.4" }, "host name"},
		"no host to check":           {func(t *tunnelspec.Tunnel) { t.CheckHost = "" }, "host name"},
		"host is too long":           {func(t *tunnelspec.Tunnel) { t.CheckHost = strings.Repeat("a.", 127) }, "host name"},
		"no roots":                   {func(t *tunnelspec.Tunnel) { t.CAFile = "" }, "CA file"},
		"roots with a relative path": {func(t *tunnelspec.Tunnel) { t.CAFile = "roots.pem" }, "CA file"},
		"roots with double dots":     {func(t *tunnelspec.Tunnel) { t.CAFile = "/etc/../tmp/roots.pem" }, "CA file"},
		"roots with a line break":    {func(t *tunnelspec.Tunnel) { t.CAFile = "/a\nverifyChain=no" }, "CA file"},
		"roots with a sum of other":  {func(t *tunnelspec.Tunnel) { t.CASum = "0a\nverifyChain = no" }, "sum of the CA file"},
		"roots with a space":         {func(t *tunnelspec.Tunnel) { t.CAFile = "/a b" }, "CA file"},
		"certificate without key":    {func(t *tunnelspec.Tunnel) { t.Cert, t.CertSum = "/a.pem", strings.Repeat("0", 64) }, "client key"},
		"key without certificate":    {func(t *tunnelspec.Tunnel) { t.Key = "/a.key" }, "client certificate"},
		"engine for a certificate":   {func(t *tunnelspec.Tunnel) { t.Cert, t.Key = "pkcs11:id", "/a.key" }, "client certificate"},
		"sum with a line break": {func(t *tunnelspec.Tunnel) {
			t.Cert, t.Key, t.CertSum = "/a", "/b", strings.Repeat("0", 64)+"\nverifyChain = no"
		}, "sum"},
		"certificate without sum": {func(t *tunnelspec.Tunnel) { t.Cert, t.Key = "/a", "/b" }, "sum"},
		"sum of no certificate":   {func(t *tunnelspec.Tunnel) { t.CertSum = strings.Repeat("0", 64) }, "client certificate"},
		"negative serial":         {func(t *tunnelspec.Tunnel) { t.Restart = -1 }, "restart serial"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tunnel := plain()
			tt.spoil(&tunnel)
			text, err := tunnelspec.Encode(tunnel)
			if err == nil || text != nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %q and error %v, want a line that names %s", text, err, tt.want)
			}
		})
	}
}

// TestStatusHasItsAddressesAsText: the supervisor writes them, and the agent reads them from a file.
func TestStatusHasItsAddressesAsText(t *testing.T) {
	for want, status := range map[string]tunnelspec.TunnelStatus{
		`{"state":"running","listening":true,"accept":"127.0.0.1:20490","restarts":0,"reloads":0,"remote":"[fd00::1]:2049"}`: {
			State: tunnelspec.StateRunning, Listening: true,
			Accept: netip.MustParseAddrPort("127.0.0.1:20490"), Remote: netip.MustParseAddrPort("[fd00::1]:2049"),
		},
		`{"state":"resting","listening":false,"restarts":0,"reloads":0}`: {State: tunnelspec.StateIdle},
	} {
		text, err := json.Marshal(status)
		if err != nil || string(text) != want {
			t.Errorf("got %s (%v), want %s", text, err, want)
		}
		var read tunnelspec.TunnelStatus
		if err := json.Unmarshal([]byte(want), &read); err != nil || read.Accept != status.Accept || read.Remote != status.Remote {
			t.Errorf("%s is read as %+v (%v)", want, read, err)
		}
	}
}
