//go:build e2e

package e2e

import "strings"

// standalone is the overlay of the same name with the lab's images and disk.
const standalone = "test/e2e/testdata/standalone"

// serverOfOurOwnServes: a cluster without the product, and without EFS, gets shared storage from the overlay standalone.
// It is the last scenario, and leaves what it installs to the end of the lab. No write fails when the server is killed, and what a claim leaves is removed from the server's disk.
func serverOfOurOwnServes(l *lab) {
	const disk = "/var/lib/nfs-disk"
	l.run("hack/images/lab", "nfs-server")
	l.onNode("node-1", "modprobe loop && truncate -s 200M "+disk+".img && mkfs.ext4 -q "+disk+".img && mkdir "+disk+" && mount -o loop "+disk+".img "+disk)
	l.kubectl("apply", "-f", "deploy/kustomize/base/namespace.yaml")
	l.kubectl("-n", system, "create", "configmap", "efs-ca", "--from-file=ca.crt="+l.dir+"/pki/efs-ca.crt")
	l.kubectl("apply", "-k", standalone)
	l.wait(system, "condition=Ready", "pod/efs-nfs-server-0")
	l.wait("default", "jsonpath={.status.conditions[?(@.type==\"Usable\")].status}=True", "efsfs/nfs")

	ns := l.namespace("standalone")
	l.apply(ns, claim("data", class)+writerSet+readerPod)
	l.wait(ns, "condition=Ready", "pod/listener")
	before := l.waitForWriterLines(ns, 10)
	_, writer := l.writerOf(ns)
	l.kubectl("-n", system, "delete", "pod", "efs-nfs-server-0", "--grace-period=0", "--force")
	l.wait(system, "condition=Ready", "pod/efs-nfs-server-0")
	all := l.waitForWriterLines(ns, len(before)+10)
	l.Logf("PAUSE %5.2f s: the NFS server's pod killed", longestPause(all, len(before)).Seconds())
	l.expectSameWriter(ns, writer)

	if out, code := l.plugin("doctor"); code != 0 {
		l.Errorf("doctor ended with code %d:\n%s", code, out)
	}
	if out := l.onNode("node-1", "ls "+disk+"/export/"+ns); !strings.HasPrefix(out, "data-") {
		l.Errorf("the server's disk has %q in the claim's namespace", out)
	}
	l.kubectl("-n", ns, "delete", "statefulsets,pods,pvc", "--all", "--timeout="+limit.String())
	l.eventually("the directory to go to the trash", func() string { return l.onNode("node-1", "ls "+disk+"/export/"+ns+" 2>/dev/null || true") })
}
