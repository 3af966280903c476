//go:build e2e

package e2e

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"
	"time"
)

const (
	// serverDisk names the folder of the disk of the NFS server, on the node that it is attached to.
	serverDisk = "/var/lib/nfs-disk"
	// attached labels that node, and the volume of the disk asks for the label.
	attached = "e2e-disk=attached"
	// fillServerDisk leaves 2 MiB, less than the hundredth that the server asks for, and enough for the writer's lines.
	fillServerDisk = `cd ` + serverDisk + ` && fallocate -l $(($(stat -f -c '%a * %S' .) - (2 << 20))) fill && sync -f fill`
)

// attach attaches the disk of the NFS server to a node, as storage of a cloud does: it is a file of the lab's stand-in for
// Amazon EFS, which the node mounts without TLS.
func (l *lab) attach(node string) {
	l.Helper()
	target, _ := l.mountTargets(shared, node)
	l.lab("efs", "update-mount-target", target.ID, "--plain")
	address, _, _ := strings.Cut(target.Address, ",") // of each family
	l.onNode(node, fmt.Sprintf("modprobe -a loop xfs && mkdir -p /run/san %[1]s && { mountpoint -q /run/san || mount -t nfs4 -o vers=4.1 %[2]s:/ /run/san; }", serverDisk, address))
}

// mountDisk makes the attached disk the node's.
func (l *lab) mountDisk(node string) {
	l.Helper()
	l.onNode(node, fmt.Sprintf("mountpoint -q %[1]s || mount -o loop,prjquota /run/san/disk %[1]s", serverDisk))
	l.kubectl("label", "node", node, attached)
}

// serverFaultsAreNamed by doctor, while the writer goes on.
func (l *lab) serverFaultsAreNamed(ns string) {
	l.Helper()
	_, writer := l.writerOf(ns)
	l.wrongAuthorityIsNamed()
	l.expiredCertificateIsNamed()

	l.onNode("node-1", fillServerDisk)
	l.doctorNames("it is full: ")
	l.kubectl("-n", ns, "exec", "listener", "--", "head", "-n", "1", "/data/lines")
	l.onNode("node-1", "rm "+serverDisk+"/fill")
	l.doctorFindsNothing()
	l.expectSameWriter(ns, writer)
}

// wrongAuthorityIsNamed: tunnels refuse a server whose certificate is of another authority than the Service says, once
// they have to connect.
func (l *lab) wrongAuthorityIsNamed() {
	l.Helper()
	const key = "efs-stunnel.gnuthought.com/ca-certificates"
	right := l.kubectl("-n", system, "get", "service", "efs-nfs-server", "-o", `jsonpath={.metadata.annotations.efs-stunnel\.gnuthought\.com/ca-certificates}`)
	wrong := l.kubectl("-n", system, "get", "configmap", "efs-ca", "-o", `jsonpath={.data.ca\.crt}`)
	l.kubectl("-n", system, "annotate", "--overwrite", "service", "efs-nfs-server", key+"="+wrong)
	l.eventually("the agents to have the wrong authority", func() string {
		l.onNode("node-2", "pkill -KILL --older 20 -x stunnel || true")
		if out, _ := l.plugin("doctor"); !strings.Contains(out, "TunnelUnhealthy") {
			return out
		}
		return ""
	})
	l.doctorNames("ertificate")
	l.kubectl("-n", system, "annotate", "--overwrite", "service", "efs-nfs-server", key+"="+right)
	l.doctorFindsNothing()
}

// expiredCertificateIsNamed: a server that starts with one is not ready, and says so. One that runs keeps what it had.
func (l *lab) expiredCertificateIsNamed() {
	l.Helper()
	const name = "efs-nfs-server-tls"
	serve := func(certificate []byte) {
		l.kubectl("-n", system, "patch", "secret", name, "--type=merge", "--patch", fmt.Sprintf(`{"data": {"tls.crt": %q}}`, base64.StdEncoding.EncodeToString(certificate)))
	}
	right := l.secret(name, "crt")
	serve(l.expired(right))
	l.kubectl("-n", system, "delete", "pod", "efs-nfs-server-0", "--grace-period=0", "--force")
	l.doctorNames("the server's certificate is valid from")
	serve(right)
	l.doctorFindsNothing()
}

// expired returns a server's certificate as one of the same authority that has expired.
func (l *lab) expired(certificate []byte) []byte {
	l.Helper()
	block, _ := pem.Decode(certificate)
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		l.Fatal(err)
	}
	authority, err := tls.X509KeyPair(l.secret("efs-stunnel-nfs-ca", "crt"), l.secret("efs-stunnel-nfs-ca", "key"))
	if err != nil {
		l.Fatal(err)
	}
	leaf.NotBefore, leaf.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, leaf, authority.Leaf, leaf.PublicKey, authority.PrivateKey)
	if err != nil {
		l.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// secret returns the certificate or the key in a Secret.
func (l *lab) secret(name, what string) []byte {
	l.Helper()
	data, err := base64.StdEncoding.DecodeString(l.kubectl("-n", system, "get", "secret", name, "-o", `jsonpath={.data.tls\.`+what+`}`))
	if err != nil {
		l.Fatal(err)
	}
	return data
}

// serverOutlivesItsNode: a node that has lost its power is deleted, its disk attached to another one, and the server
// scheduled there. The writer on that node goes on, with every line.
func (l *lab) serverOutlivesItsNode(ns, volume string) {
	l.Helper()
	before := l.waitForWriterLines(ns, 10)
	_, writer := l.writerOf(ns)
	l.lab("node", "stop", "node-1", "--hard")
	l.kubectl("delete", "node", "node-1")
	l.doctorNames("pod efs-nfs-server-0")
	l.attach("node-2")
	l.mountDisk("node-2")
	l.eventually("the server to be on node-2", func() string { return l.serverIsNotOn("node-2") })
	l.wait(system, "condition=Ready", "pod/efs-nfs-server-0")
	all := l.waitForWriterLines(ns, len(before)+10)
	l.Logf("PAUSE %5.2f s: the NFS server's node deleted", longestPause(all, len(before)).Seconds())
	l.expectSameWriter(ns, writer)

	l.wait(ns, "delete", "pod/listener")
	l.lab("node", "start", "node-1")
	l.waitForAgents()
	l.apply(ns, readerPod)
	l.wait(ns, "condition=Ready", "pod/listener")
	l.expectLocked("node-1", volume)
	l.doctorFindsNothing()
}

// serverIsDrained from node-2, and its disk attached to node-1. The server ends in order, and keeps the locks.
func (l *lab) serverIsDrained(ns, volume string) {
	l.Helper()
	before := l.waitForWriterLines(ns, 10)
	_, writer := l.writerOf(ns)
	l.kubectl("cordon", "node-2")
	l.evict(system, "efs-nfs-server-0")
	// The kubelet has a mount of its own until the pod has ended. On two nodes at once, the disk would be destroyed.
	l.onNode("node-2", `[ "$(grep -c ' xfs ' /proc/mounts)" = 1 ] && umount `+serverDisk)
	l.kubectl("label", "node", "node-2", "e2e-disk-")
	l.attach("node-1")
	l.mountDisk("node-1")
	l.eventually("the server to be on node-1", func() string { return l.serverIsNotOn("node-1") })
	l.wait(system, "condition=Ready", "pod/efs-nfs-server-0")
	l.kubectl("uncordon", "node-2")
	all := l.waitForWriterLines(ns, len(before)+10)
	l.Logf("PAUSE %5.2f s: the NFS server's node drained", longestPause(all, len(before)).Seconds())
	l.expectSameWriter(ns, writer)
	l.expectLocked("node-1", volume)
}

// serverDiskIsRestored from a snapshot, in the steps of docs/tasks/nfs-server.md. What was written after it is gone.
func (l *lab) serverDiskIsRestored(ns string) {
	l.Helper()
	const disk, snapshot = "/run/san/disk", "/run/san/snapshot"
	l.kubectl("-n", ns, "exec", "listener", "--", "sh", "-ec", `rm /data/fill && echo "worth keeping" > /data/saved`)
	l.onNode("node-2", fmt.Sprintf("fsfreeze -f %[1]s; cp --sparse=always %[2]s %[3]s; fsfreeze -u %[1]s", serverDisk, disk, snapshot))
	l.kubectl("-n", ns, "exec", "listener", "--", "sh", "-ec", "mv /data/saved /data/lost")

	l.kubectl("-n", ns, "delete", "statefulsets,pods", "--all", "--timeout="+limit.String())
	l.kubectl("-n", system, "scale", "statefulset/efs-nfs-server", "--replicas=0")
	l.wait(system, "delete", "pod/efs-nfs-server-0")
	l.kubectl("-n", system, "delete", "pvc", "data-efs-nfs-server-0")
	l.kubectl("patch", "pv", "disk", "--type=merge", "--patch", `{"spec": {"claimRef": null}}`) // the restored one takes its place
	l.onNode("node-2", fmt.Sprintf("umount %s && mv %s %s", serverDisk, snapshot, disk))
	l.mountDisk("node-2")
	l.kubectl("-n", system, "scale", "statefulset/efs-nfs-server", "--replicas=1")
	l.wait("default", "jsonpath={.status.conditions[?(@.type==\"Usable\")].status}=True", "efsfs/nfs")

	l.apply(ns, readerPod)
	l.wait(ns, "condition=Ready", "pod/listener")
	l.kubectl("-n", ns, "exec", "listener", "--", "sh", "-ec", `[ "$(cat /data/saved)" = "worth keeping" ] && [ ! -e /data/lost ]`)
	l.doctorFindsNothing()
}

func (l *lab) serverIsNotOn(node string) (reason string) {
	l.Helper()
	is := l.kubectl("-n", system, "get", "pods", "-l", "app.kubernetes.io/component=nfs-server", "-o", "jsonpath={.items[*].spec.nodeName}")
	if is != node {
		return "it is on " + is
	}
	return ""
}

// takeLock has a process on a node lock a file of a volume until its node ends or releaseLock ends the process.
func (l *lab) takeLock(node, volume string) {
	l.Helper()
	l.onVolume(node, volume, "exec 9> lock && flock -n 9 && cd / && { nohup "+lockHolder+" > /dev/null 2>&1 & }")
}

const lockHolder = "sleep 1000000"

func (l *lab) releaseLock(node string) {
	l.Helper()
	l.onNode(node, "pkill -f '^"+lockHolder+"'")
}

// expectLocked has another node ask for the lock, which the server must have given back to its holder.
func (l *lab) expectLocked(node, volume string) {
	l.Helper()
	l.onVolume(node, volume, "flock -n -E 9 lock true; [ $? = 9 ]")
}

// onVolume runs a command in the directory at which a node has mounted a volume.
func (l *lab) onVolume(node, volume, command string) (output string) {
	l.Helper()
	return l.onNode(node, "dir=$(grep -m 1 '/"+volume+" ' /proc/mounts | cut -d ' ' -f 2)\n[ -n \"$dir\" ] && cd \"$dir\" || exit 1\n"+command)
}

// logServerResources logs what the server has used on its node, page cache not included.
func (l *lab) logServerResources(node string) {
	l.Helper()
	const read = `cd /sys/fs/cgroup/$(cut -d: -f3 /proc/$(pgrep -x ganesha.nfsd)/cgroup) && grep -E '^(anon|file|kernel) ' memory.stat && cat memory.peak && grep usage_usec cpu.stat`
	l.Logf("SERVER %s", strings.ReplaceAll(l.onNode(node, read), "\n", ", "))
}

func (l *lab) doctorNames(text string) {
	l.Helper()
	l.eventually("doctor to name "+text, func() string {
		if out, _ := l.plugin("doctor"); !strings.Contains(out, text) {
			return out
		}
		return ""
	})
}

// doctorFindsNothing once agents have written what has ended, which they do within ten seconds.
func (l *lab) doctorFindsNothing() {
	l.Helper()
	l.eventually("doctor to find no problem", func() string {
		out, code := l.plugin("doctor")
		if code == 0 {
			return ""
		}
		return out
	})
}
