package readahead

import (
	"bytes"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/ports"
)

const header = "NV SERVER   PORT DEV          FSID                              FSC\n"

func TestReadMounts(t *testing.T) {
	at := func(server, device string) mount { return mount{netip.MustParseAddrPort(server), device} }
	for name, tt := range map[string]struct {
		text string
		want []mount
		err  string
	}{
		"no mount":         {text: header},
		"an empty file":    {},
		"a mount":          {text: header + "v4 7f000001 500a 0:45         9a6f2c1d0e3b4a58:0                no \n", want: []mount{at("127.0.0.1:20490", "0:45")}},
		"IPv6":             {text: header + "v4 00000000000000000000000000000001  801 0:46 0:0 no\n", want: []mount{at("[::1]:2049", "0:46")}},
		"IPv4 in IPv6":     {text: header + "v4 00000000000000000000ffff7f000001 500a 0:46 0:0 no\n", want: []mount{at("127.0.0.1:20490", "0:46")}},
		"two":              {text: header + "v3 0a000001 801 0:45 0:0 no\nv4 7f000001 500a 0:47 0:0 yes\n", want: []mount{at("10.0.0.1:2049", "0:45"), at("127.0.0.1:20490", "0:47")}},
		"too few columns":  {text: header + "v4 7f000001 500a\n", err: `line 2: "v4 7f000001 500a": 3 columns`},
		"no address":       {text: header + "v4 localhost 500a 0:45 0:0 no\n", err: "address"},
		"a short address":  {text: header + "v4 7f0001 500a 0:45 0:0 no\n", err: "3 bytes, want 4 or 16"},
		"no port":          {text: header + "v4 7f000001 nfs 0:45 0:0 no\n", err: "port"},
		"a path as device": {text: header + "v4 7f000001 500a ../x 0:0 no\n", err: "device"},
	} {
		got, err := readMounts(strings.NewReader(tt.text))
		if !slices.Equal(got, tt.want) || (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v, %v; want %v, %q", name, got, err, tt.want, tt.err)
		}
	}
}

const table = `efs_stunnel_targets:
  fs-1:
    stunnel_port: 20490
    access_points: {fsap-0123456789abcdef0: {stunnel_port: 20510}}
`

// node is one with a file for each setting of the kernel.
type node struct {
	setter
	t   *testing.T
	log bytes.Buffer
}

func newNode(t *testing.T, mounts string) *node {
	folder := t.TempDir()
	n := &node{t: t}
	n.Options = Options{
		KiB: 15360, Table: filepath.Join(folder, "table"), Mounts: filepath.Join(folder, "volumes"), Devices: filepath.Join(folder, "bdi"),
		Interval: time.Second, Log: slog.New(slog.NewTextHandler(&n.log, nil)),
	}
	n.write(n.Table, table)
	n.write(n.Mounts, header+mounts)
	return n
}

func (n *node) write(path, text string) {
	n.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) setting(device string) string {
	return filepath.Join(n.Devices, device, "read_ahead_kb")
}

func (n *node) read(device string) string {
	n.t.Helper()
	text, err := os.ReadFile(n.setting(device))
	if err != nil {
		n.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func TestMountsThatAreSet(t *testing.T) {
	for name, tt := range map[string]struct {
		line, before, want string
	}{
		"of a file system":          {"v4 7f000001 500a 0:45 0:0 no", "128\n", "15360"},
		"of an access point":        {"v4 7f000001 501e 0:45 0:0 no", "128\n", "15360"},
		"set by a rule of the node": {"v4 7f000001 500a 0:45 0:0 no", "4096\n", "4096"},
		"of another server":         {"v4 0a000001 500a 0:45 0:0 no", "128\n", "128"},
		"of another port":           {"v4 7f000001 0801 0:45 0:0 no", "128\n", "128"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, tt.line+"\n")
			n.write(n.setting("0:45"), tt.before)
			if err := n.setAll(); err != nil {
				t.Error(err)
			}
			if got := n.read("0:45"); got != tt.want {
				t.Errorf("read-ahead is %s, want %s", got, tt.want)
			}
		})
	}
}

// TestOneFailureKeepsNothingElse has a mount of which the setting cannot be read, one that is gone, and a
// table that turns bad.
func TestOneFailureKeepsNothingElse(t *testing.T) {
	n := newNode(t, "v4 7f000001 500a 0:1 0:0 no\nv4 7f000001 500a 0:2 0:0 no\nv4 7f000001 500a 0:3 0:0 no\n")
	n.write(filepath.Join(n.setting("0:2"), "x"), "") // a folder
	n.write(n.setting("0:3"), "128\n")
	if err := n.setAll(); err == nil || !strings.Contains(err.Error(), "0:2") {
		t.Errorf("%v, want the setting of 0:2", err)
	}
	if got := n.read("0:3"); got != "15360" {
		t.Errorf("the third mount has %s", got)
	}
	n.write(n.Table, "efs_stunnel_targets: 1\n")
	n.write(n.setting("0:3"), "128\n") // mounted again
	if err := n.setAll(); err == nil || !strings.Contains(err.Error(), n.Table) {
		t.Errorf("%v, want the table", err)
	}
	if got := n.read("0:3"); got != "15360" {
		t.Errorf("with a bad table, the port's mount has %s", got)
	}
}

// TestTheViewOfTheTable keeps its ports when it turns bad.
func TestTheViewOfTheTable(t *testing.T) {
	n := newNode(t, "v4 7f000001 500a 0:1 0:0 no\n")
	view, err := ports.NewView(&corev1.ConfigMap{Data: map[string]string{"efs-stunnel.yaml": table}})
	if err != nil {
		t.Fatal(err)
	}
	n.Table += ".gz"
	n.write(n.Table, string(view.BinaryData["efs-stunnel.yaml.gz"]))
	n.write(n.setting("0:1"), "128\n")
	if err := n.setAll(); err != nil || n.read("0:1") != "15360" {
		t.Errorf("read-ahead is %s, %v", n.read("0:1"), err)
	}
	n.write(n.Table, table)
	n.write(n.setting("0:1"), "128\n") // mounted again
	if err := n.setAll(); err == nil || !strings.Contains(err.Error(), n.Table) || n.read("0:1") != "15360" {
		t.Errorf("read-ahead is %s, %v", n.read("0:1"), err)
	}
}

// TestUnchangedTableIsNotDecodedAgain, but its error remains.
func TestUnchangedTableIsNotDecodedAgain(t *testing.T) {
	n := newNode(t, "")
	if err := n.setAll(); err != nil || !n.ports[20490] {
		t.Errorf("got ports %v, %v", n.ports, err)
	}
	n.ports = nil
	if err := n.setAll(); err != nil || n.ports != nil {
		t.Errorf("the table is unchanged: got ports %v, %v", n.ports, err)
	}
	n.write(n.Table, strings.ReplaceAll(table, "20490", "20491"))
	if err := n.setAll(); err != nil || !n.ports[20491] {
		t.Errorf("the table is changed: got ports %v, %v", n.ports, err)
	}
	n.write(n.Table, "efs_stunnel_targets: 1\n")
	for range 2 {
		if err := n.setAll(); err == nil || !strings.Contains(err.Error(), n.Table) {
			t.Errorf("%v, want the table", err)
		}
	}
}

// TestNothingIsThere before the first mount, and before the manager's first table.
func TestNothingIsThere(t *testing.T) {
	n := newNode(t, "v4 7f000001 500a 0:1 0:0 no\n")
	for _, path := range []string{n.Table, n.Mounts} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := n.setAll(); err != nil {
			t.Error(err)
		}
	}
}

func TestListThatCannotBeRead(t *testing.T) {
	n := newNode(t, "x\n")
	if err := n.setAll(); err == nil || !strings.Contains(err.Error(), n.Mounts) {
		t.Errorf("%v, want the list", err)
	}
}

// TestLaterMountIsSet, and a trouble that lasts is logged once.
func TestLaterMountIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "x\n")
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			Run(t.Context(), n.Options)
		}()
		t.Cleanup(func() { <-ended })
		<-time.After(10 * n.Interval)
		if got := strings.Count(n.log.String(), "read-ahead not set"); got != 1 {
			t.Errorf("logged %d times:\n%s", got, &n.log)
		}
		n.write(n.setting("0:45"), "128\n")
		n.write(n.Mounts, header+"v4 7f000001 500a 0:45 0:0 no\n")
		<-time.After(2 * n.Interval)
		if got := n.read("0:45"); got != "15360" {
			t.Errorf("read-ahead is %s", got)
		}
	})
}
