package nodecheck

import (
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/api/nodereport"
	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/test/support/stunneltest"
)

// nodeOf writes files of a node, and of its process file system below proc.
func nodeOf(t *testing.T, files map[string]string) nodereport.Request {
	t.Helper()
	host := t.TempDir()
	for name, text := range files {
		path := filepath.Join(host, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return nodereport.Request{Host: host, Proc: filepath.Join(host, "proc")}
}

func TestReportOfANode(t *testing.T) {
	const kernel = "6.1.0-40-amd64"
	tests := map[string]struct {
		files map[string]string
		want  nodereport.Report
	}{
		"an empty node": {nil, nodereport.Report{MountNFS: []string{}, Booleans: map[string]bool{}}},
		"a node in use": {map[string]string{
			"sbin/mount.nfs":                               "",
			"proc/sys/kernel/osrelease":                    kernel + "\n",
			"proc/sys/kernel/hostname":                     "localhost\n",
			"proc/filesystems":                             "nodev\tsysfs\n\text4\nnodev\tnfs\nnodev\tnfs4\n",
			"proc/sys/net/ipv4/ip_local_port_range":        "32768\t60999\n",
			"proc/sys/net/ipv4/ip_local_reserved_ports":    "1-2\n",
			"sys/fs/selinux/enforce":                       "1",
			"sys/fs/selinux/booleans/virt_use_nfs":         "1 1",
			"sys/fs/selinux/booleans/virt_sandbox_use_nfs": "0 1",
		}, nodereport.Report{
			MountNFS: []string{"/sbin/mount.nfs"}, NFS4: "loaded", Kernel: kernel, HostName: "localhost", PortRange: "32768 60999", Reserved: "1-2",
			Enforcing: true, Booleans: map[string]bool{"virt_use_nfs": true, "virt_sandbox_use_nfs": false},
		}},
		"a node with an identity of its own": {map[string]string{
			"proc/sys/kernel/hostname":                 "localhost\n",
			"sys/module/nfs/parameters/nfs4_unique_id": "node-1\n",
		}, nodereport.Report{MountNFS: []string{}, HostName: "node-1/localhost", Booleans: map[string]bool{}}},
		"a node that has mounted nothing": {map[string]string{
			"usr/sbin/mount.nfs":                        "",
			"proc/sys/kernel/osrelease":                 kernel,
			"proc/filesystems":                          "nodev\tnfsd\n",
			"lib/modules/" + kernel + "/modules.dep":    "kernel/fs/nfs/nfsv4.ko.xz: kernel/fs/nfs/nfs.ko.xz\n",
			"sys/fs/selinux/enforce":                    "0",
			"proc/sys/net/ipv4/ip_local_reserved_ports": "\n",
		}, nodereport.Report{MountNFS: []string{"/usr/sbin/mount.nfs"}, NFS4: "module", Kernel: kernel, Booleans: map[string]bool{}}},
		"a client in the kernel": {map[string]string{
			"proc/sys/kernel/osrelease":                      kernel,
			"usr/lib/modules/" + kernel + "/modules.builtin": "kernel/fs/nfs/nfsv4.ko\n",
		}, nodereport.Report{MountNFS: []string{}, NFS4: "built in", Kernel: kernel, Booleans: map[string]bool{}}},
		"a module of another kernel, or of which others depend only": {map[string]string{
			"proc/sys/kernel/osrelease":              kernel,
			"lib/modules/5.0/modules.dep":            "kernel/fs/nfs/nfsv4.ko:\n",
			"lib/modules/" + kernel + "/modules.dep": "kernel/x.ko: kernel/fs/nfs/nfsv4.ko\n",
		}, nodereport.Report{MountNFS: []string{}, Kernel: kernel, Booleans: map[string]bool{}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Run(t.Context(), nodeOf(t, tt.files), nil)); diff != "" {
				t.Errorf("report mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

// TestHelperMayBeALinkToAnywhere: the pod has the node's files below another path.
func TestHelperMayBeALinkToAnywhere(t *testing.T) {
	r := nodeOf(t, map[string]string{"sbin/x": ""})
	if err := os.Symlink("/nowhere/mount.nfs", filepath.Join(r.Host, "sbin/mount.nfs")); err != nil {
		t.Fatal(err)
	}
	if got := Run(t.Context(), r, nil).MountNFS; len(got) != 1 {
		t.Errorf("got %q", got)
	}
}

const host = "fs-1.efs.us-east-1.amazonaws.com"

// answer is an NFS server's to a NULL call.
func answer(conn net.Conn) {
	call := make([]byte, 44)
	for {
		if _, err := io.ReadFull(conn, call); err != nil {
			return
		}
		reply := binary.BigEndian.AppendUint32(nil, 1<<31|24)
		reply = append(reply, call[4:8]...) // xid
		for _, word := range []uint32{1, 0, 0, 0, 0} {
			reply = binary.BigEndian.AppendUint32(reply, word)
		}
		if _, err := conn.Write(reply); err != nil {
			return
		}
	}
}

func TestMountTargetsAreReached(t *testing.T) {
	authority := stunneltest.NewAuthority(t)
	config := &tls.Config{Certificates: []tls.Certificate{authority.Valid(t, host)}, MinVersion: tls.VersionTLS12}
	good := stunneltest.Serve(t, config, answer).Address.String()
	closed := stunneltest.Serve(t, config, func(net.Conn) {}).Address.String()
	refusing := stunneltest.FreePort(t, "127.0.0.1").String()
	roots, err := os.ReadFile(authority.File)
	if err != nil {
		t.Fatal(err)
	}
	server := func(host, address string) nodereport.Server {
		return nodereport.Server{FileSystem: "fs-1", Host: host, Address: address}
	}
	tests := map[string]struct {
		server nodereport.Server
		ca     string
		reason string
	}{
		"it answers":         {server(host, good), string(roots), ""},
		"roots of the image": {server(host, good), "", ""},
		"another name":       {server("fs-2.efs.us-east-1.amazonaws.com", good), string(roots), tunnelspec.ProbeCertificate},
		"roots are none":     {server(host, good), "x", tunnelspec.ProbeCertificate},
		"it closes":          {server(host, closed), string(roots), tunnelspec.ProbeClosed},
		"it refuses":         {server(host, refusing), string(roots), tunnelspec.ProbeRefused},
		"a name of no host":  {server("fs-1.invalid", ""), string(roots), nodereport.ReasonName},
		"not an address":     {server(host, "x"), string(roots), nodereport.ReasonName},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := nodeOf(t, nil)
			r.Servers, r.CA = []nodereport.Server{tt.server}, tt.ca
			got := Run(t.Context(), r, []string{filepath.Join(r.Host, "none"), authority.File})
			if tt.reason == "" {
				if got.Answered != 1 || got.Failed != 0 || len(got.Failures) != 0 {
					t.Errorf("got %+v", got)
				}
				return
			}
			if got.Answered != 0 || got.Failed != 1 || len(got.Failures) != 1 || got.Failures[0].Reason != tt.reason || got.Failures[0].Error == "" {
				t.Errorf("got %+v, want %s", got, tt.reason)
			}
		})
	}
}

// TestReportFitsIntoATerminationMessage has more failures than fit.
func TestReportFitsIntoATerminationMessage(t *testing.T) {
	r := nodeOf(t, nil)
	for range 50 {
		r.Servers = append(r.Servers, nodereport.Server{FileSystem: strings.Repeat("f", 43), Host: host, Address: strings.Repeat("x", 300)})
	}
	got := Run(t.Context(), r, nil)
	for i := range got.Failures {
		got.Failures[i].Address = strings.Repeat("1", 45)
	}
	text, err := json.Marshal(got)
	if err != nil || len(text) > 4096 || got.Failed != 50 || len(got.Failures) != mostFailures {
		t.Errorf("%d bytes, %d failed, %v", len(text), got.Failed, err)
	}
}
