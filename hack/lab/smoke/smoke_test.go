//go:build smoke

// Package smoke tests the lab with plain manifests and without the product.
package smoke

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
)

// The file systems of a new lab, and the local ports of their tunnels.
const (
	shared          = "fs-0123456789abcdef0"
	archive         = "fs-0123456789abcdef1"
	sharedPort      = 20490
	archivePort     = 20491
	accessPointPort = 20492
)

// TestDownCleansUpAfterAKilledLab runs first, because CI keeps the end of the output, and failures of
// TestLab need more of it.
func TestDownCleansUpAfterAKilledLab(t *testing.T) {
	l := newLab(record(t), "smoke-killed")
	l.lab("up", "--nodes", "0")
	records, err := l.Parts().List()
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range records {
		if i%2 == 0 { // half of the parts are killed, the others continue
			kill(t, r.PID)
		}
	}
	l.lab("down")
	l.wantNothingLeft()
	l.lab("down")
}

func TestLab(t *testing.T) {
	l := newLab(record(t), "smoke")
	l.lab("up")
	steps := []struct {
		name string
		run  func(*testLab)
	}{
		{"nodes are in two zones and two subnets", nodesAreInTwoZones},
		{"up does not change a lab that is up", upAgainChangesNothing},
		{"a node's instance metadata is its own", metadataIsTheNodesOwn},
		{"tunnels come up on every node", tunnelsComeUp},
		{"hand-written volumes bind their claims", volumesBind},
		{"a pod reads on one node what another wrote on the other", podsShareBytes},
		{"the kernel does not mix up two file systems", fileSystemsAreSeparate},
		{"an access point has its own root and user", accessPointHasItsOwnRoot},
		{"writes wait while mount targets refuse connections", writesWaitForMountTargets},
		{"nodes are stopped, started, added and removed", nodesAreStoppedStartedAddedAndRemoved},
		{"two labs run side by side", labsRunSideBySide},
	}
	for _, s := range steps {
		if !t.Run(s.name, func(t *testing.T) { s.run(l.in(t)) }) {
			return // later steps need the earlier ones
		}
	}
}

func nodesAreInTwoZones(l *testLab) {
	const template = `{range .items[*]}{.metadata.name} {.metadata.labels.topology\.kubernetes\.io/region} {.metadata.labels.topology\.kubernetes\.io/zone} {.status.addresses[?(@.type=="InternalIP")].address}{"\n"}{end}`
	want := "node-1 us-east-1 us-east-1a 10.90.1.11\nnode-2 us-east-1 us-east-1b 10.90.2.12\n"
	if got := l.kubectl("get", "nodes", "-o", "jsonpath="+template); got != want {
		l.t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

func upAgainChangesNothing(l *testLab) {
	before, err := l.Parts().List()
	if err != nil {
		l.t.Fatal(err)
	}
	l.lab("up")
	for _, r := range before {
		if now, ok := l.Parts().Get(r.Name); !ok || now.PID != r.PID {
			l.t.Errorf("%s was started again", r.Name)
		}
	}
	if out := l.lab("status"); strings.Contains(out, "dead") || strings.Contains(out, "NotReady") {
		l.t.Error("not everything runs")
	}
}

func metadataIsTheNodesOwn(l *testLab) {
	const script = `exec 3<>/dev/tcp/169.254.169.254/80
printf 'PUT /latest/api/token HTTP/1.0\r\nX-aws-ec2-metadata-token-ttl-seconds: 60\r\n\r\n' >&3
token=$(tail -n 1 <&3)
exec 3<>/dev/tcp/169.254.169.254/80
printf 'GET /latest/meta-data/placement/availability-zone HTTP/1.0\r\nX-aws-ec2-metadata-token: %s\r\n\r\n' "$token" >&3
tail -n 1 <&3`
	for node, zone := range map[string]string{"node-1": "us-east-1a", "node-2": "us-east-1b"} {
		l.eventually(node+" to read its zone", func() string {
			out, err := l.try("exec", node, "--", "bash", "-c", script)
			if got := strings.TrimSpace(out); err != nil || got != zone {
				return fmt.Sprintf("it says %q, %v, want %s", got, err, zone)
			}
			return ""
		})
	}
}

func tunnelsComeUp(l *testLab) {
	l.kubectl("create", "namespace", "smoke")
	accessPoint := strings.TrimSpace(l.lab("efs", "create-access-point", "--file-system", shared,
		"--path", "/apps/one", "--user", "4711:4712", "--owner", "4711:4712", "--permissions", "0750"))
	config := filepath.Join(l.t.TempDir(), "stunnel.conf")
	write(l.t, config, []byte(l.stunnelConfig()))
	cert, key := clientCertificate(l.t, shared, accessPoint)
	l.kubectl("-n", "smoke", "create", "configmap", "tunnels",
		"--from-file=stunnel.conf="+config, "--from-file=ca.crt="+standin.CAFile(l.Lab),
		"--from-file=client.crt="+cert, "--from-file=client.key="+key)
	l.apply("tunnels.yaml")
	l.kubectl("-n", "smoke", "rollout", "status", "daemonset/tunnels", fmt.Sprintf("--timeout=%ds", int(limit.Seconds())))
}

// stunnelConfig returns a client configuration as an administrator would write it.
func (l *testLab) stunnelConfig() string {
	var b strings.Builder
	b.WriteString("foreground = yes\npid =\n")
	for _, s := range []struct {
		name, fileSystem string
		port             int
		extra            string
	}{
		{"shared", shared, sharedPort, ""},
		{"archive", archive, archivePort, ""},
		{"access-point", shared, accessPointPort, "cert = /config/client.crt\nkey = /config/client.key\n"},
	} {
		host := fmt.Sprintf("%s.efs.%s.amazonaws.com", s.fileSystem, state.Region)
		fmt.Fprintf(&b, "[%s]\nclient = yes\naccept = 127.0.0.1:%d\n", s.name, s.port)
		for _, target := range l.mountTargets(s.fileSystem) {
			fmt.Fprintf(&b, "connect = %s:2049\n", target.Address)
		}
		fmt.Fprintf(&b, "failover = prio\ncheckHost = %s\nsni = %s\nverifyChain = yes\nCAfile = /config/ca.crt\n", host, host)
		b.WriteString("sslVersionMin = TLSv1.2\nrenegotiation = no\n")
		b.WriteString("TIMEOUTbusy = 20\nTIMEOUTclose = 0\nTIMEOUTconnect = 5\nTIMEOUTidle = 70\n" + s.extra)
	}
	return b.String()
}

func volumesBind(l *testLab) {
	l.apply("volumes.yaml")
	l.wait("--for=jsonpath={.status.phase}=Bound", "pvc/shared", "pvc/archive", "pvc/access-point")
}

func podsShareBytes(l *testLab) {
	l.apply("pods.yaml")
	l.wait("--for=condition=Ready", "pod/writer", "pod/reader")
	l.inPod("writer", "dd if=/dev/urandom of=/shared/bytes bs=1M count=16 conv=fsync")
	wrote := l.inPod("writer", "sha256sum < /shared/bytes")
	if read := l.inPod("reader", "sha256sum < /shared/bytes"); read != wrote {
		l.t.Errorf("the reader's sum is %s, the writer's %s", read, wrote)
	}
	stored, err := os.ReadFile(l.dataPath(shared, "bytes"))
	if err != nil {
		l.t.Fatal(err)
	}
	sum := sha256.Sum256(stored)
	if want := hex.EncodeToString(sum[:]); !strings.HasPrefix(wrote, want) {
		l.t.Errorf("the server's sum is %s, the writer's %s", want, wrote)
	}
	l.wait("--for=condition=Complete", "job/job")
	if got := l.inPod("reader", "cat /shared/job"); got != "from the job" {
		l.t.Errorf("the Job's file holds %q", got)
	}
}

// dataPath returns the path of a file of a file system on the stand-in's disk.
func (l *testLab) dataPath(fileSystem, file string) string {
	return l.Path("efs", "data", fileSystem, file)
}

// fileSystemsAreSeparate: the kernel may take two similar servers for two paths to one server (NFSv4.1
// trunking). Both pods mount both file systems.
func fileSystemsAreSeparate(l *testLab) {
	for round := range 10 {
		l.inPod("writer", fmt.Sprintf("echo shared > /shared/same-name-%d; echo archive > /archive/same-name-%d", round, round))
		for _, fs := range []struct{ id, name string }{{shared, "shared"}, {archive, "archive"}} {
			file := fmt.Sprintf("same-name-%d", round)
			if got := l.inPod("reader", "cat /"+fs.name+"/"+file); got != fs.name {
				l.t.Errorf("round %d: the reader found %q on %s", round, got, fs.name)
			}
			stored, err := os.ReadFile(l.dataPath(fs.id, file))
			if err != nil || strings.TrimSpace(string(stored)) != fs.name {
				l.t.Errorf("round %d: server %s has %q, %v", round, fs.name, stored, err)
			}
		}
	}
	if _, err := os.Stat(l.dataPath(archive, "bytes")); !os.IsNotExist(err) {
		l.t.Errorf("a file of one file system is on the other: %v", err)
	}
}

func accessPointHasItsOwnRoot(l *testLab) {
	l.inPod("writer", "echo hello > /access-point/file")
	if got := l.inPod("writer", "stat -c %u:%g /access-point/file; stat -c %u:%g:%a /access-point"); got != "4711:4712\n4711:4712:750" {
		l.t.Errorf("owners in the pod: %q", got)
	}
	if got := l.inPod("writer", "ls /access-point"); got != "file" {
		l.t.Errorf("the access point's root holds %q", got)
	}
	if got := l.inPod("reader", "cat /shared/apps/one/file"); got != "hello" {
		l.t.Errorf("through the file system the file holds %q", got)
	}
}

func writesWaitForMountTargets(l *testLab) {
	targets := l.mountTargets(shared)
	for _, target := range targets {
		l.lab("efs", "update-mount-target", target.ID, "--mode", "refuse")
	}
	pod := strings.TrimSpace(l.kubectl("-n", "smoke", "get", "pods", "-l", "app=tunnels",
		"--field-selector", "spec.nodeName=node-1", "-o", "name"))
	l.eventually("stunnel to be refused", func() string {
		if log, err := l.try("kubectl", "--", "-n", "smoke", "logs", pod); err == nil && strings.Contains(log, "Connection refused") {
			return ""
		}
		// A client's connection makes stunnel connect, too.
		_, _ = l.try("exec", "node-1", "--", "bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d", sharedPort))
		return "no line about it in its log"
	})
	l.inPod("writer", "(echo late > /shared/late; sync) > /dev/null 2>&1 &")
	for _, target := range targets {
		l.lab("efs", "update-mount-target", target.ID, "--mode", "ok")
	}
	l.eventually("the write to arrive", func() string {
		stored, err := os.ReadFile(l.dataPath(shared, "late"))
		if err != nil {
			return err.Error()
		}
		if string(stored) != "late\n" {
			return fmt.Sprintf("the server has %q", stored)
		}
		return ""
	})
}

func nodesAreStoppedStartedAddedAndRemoved(l *testLab) {
	l.lab("node", "stop", "node-2")
	if out := l.lab("status"); !strings.Contains(out, "stopped") {
		l.t.Error("status does not show the stopped node")
	}
	l.lab("node", "start", "node-2")
	l.lab("node", "add", "node-3", "--zone", "us-east-1b")
	l.kubectl("-n", "smoke", "rollout", "status", "daemonset/tunnels", fmt.Sprintf("--timeout=%ds", int(limit.Seconds())))
	l.lab("node", "remove", "node-3")
	if out := l.kubectl("get", "nodes", "-o", "name"); out != "node/node-1\nnode/node-2\n" {
		l.t.Errorf("nodes after a removal: %s", out)
	}
}

func labsRunSideBySide(l *testLab) {
	other := newLab(l.t, "smoke-other")
	other.lab("up", "--nodes", "0")
	other.kubectl("create", "namespace", "other")
	if out := l.kubectl("get", "namespaces", "-o", "name"); strings.Contains(out, "namespace/other") {
		l.t.Error("the first lab has the second one's namespace")
	}
	other.lab("efs", "delete-file-system", archive, "--cascade")
	if len(l.mountTargets(archive)) != 2 {
		l.t.Error("the first lab lost the file system that was deleted in the second")
	}
	other.lab("down")
	l.kubectl("get", "--raw", "/readyz")
}
