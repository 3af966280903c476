//go:build e2e

package e2e

import (
	"fmt"
	"os/exec"
	"strings"
)

// standalone is the overlay of the same name with the lab's images and disk.
const standalone = "test/e2e/testdata/standalone"

// serverOfOurOwnServes: a cluster without the product, and without EFS, gets shared storage from the overlay standalone.
// It is the last scenario, and leaves what it installs to the end of the lab. No write fails when the server is killed or
// loses its node, and what a claim leaves is removed from the server's disk.
func serverOfOurOwnServes(l *lab) {
	l.run("hack/images/lab", "nfs-server")
	l.attach("node-2")
	l.makeXFS("node-2", "/run/san/disk")
	l.mountDisk("node-2")
	l.kubectl("apply", "-f", "deploy/kustomize/base/namespace.yaml")
	l.kubectl("-n", system, "create", "configmap", "efs-ca", "--from-file=ca.crt="+l.dir+"/pki/efs-ca.crt")
	l.kubectl("apply", "-k", standalone)
	l.wait(system, "condition=Ready", "pod/efs-nfs-server-0")
	l.wait("default", "jsonpath={.status.conditions[?(@.type==\"Usable\")].status}=True", "efsfs/nfs")
	l.wait("default", "jsonpath={.status.conditions[?(@.type==\"SizesEnforced\")].status}=True", "efsfs/nfs")

	ns := l.namespace("standalone")
	l.apply(ns, sized("data", "64Mi")+onNodeTwo(writerSet)+readerPod)
	l.wait(ns, "condition=Ready", "pod/listener")
	volume := l.kubectl("-n", ns, "get", "pvc", "data", "-o", "jsonpath={.spec.volumeName}")
	before := l.waitForWriterLines(ns, 10)
	_, writer := l.writerOf(ns)
	l.takeLock("node-2", volume)
	l.kubectl("-n", system, "delete", "pod", "efs-nfs-server-0", "--grace-period=0", "--force")
	l.wait(system, "condition=Ready", "pod/efs-nfs-server-0")
	all := l.waitForWriterLines(ns, len(before)+10)
	l.Logf("PAUSE %5.2f s: the NFS server's pod killed", longestPause(all, len(before)).Seconds())
	l.expectSameWriter(ns, writer)
	l.expectLocked("node-1", volume)

	l.doctorFindsNothing()
	l.serverIsDrained(ns, volume)
	l.serverFaultsAreNamed(ns)
	l.serverOutlivesItsNode(ns, volume)
	l.releaseLock("node-2")
	if out := l.onNode("node-2", "ls "+serverDisk+"/export/"+ns); !strings.HasPrefix(out, "data-") {
		l.Errorf("the server's disk has %q in the claim's namespace", out)
	}
	l.sizesAreLimits(ns)
	l.logServerResources("node-2")
	l.serverDiskIsRestored(ns)
	l.kubectl("-n", ns, "delete", "statefulsets,pods,pvc", "--all", "--timeout="+limit.String())
	l.eventually("the directory to go to the trash", func() string { return l.onNode("node-2", "ls "+serverDisk+"/export/"+ns+" 2>/dev/null || true") })
}

// sized returns a claim of a size.
func sized(name, size string) string { return strings.Replace(claim(name, class), "1Gi", size, 1) }

// makeXFS makes an xfs in a file of a node, which has no mkfs.xfs. 300 MiB are the least that mkfs.xfs makes.
func (l *lab) makeXFS(node, file string) {
	l.Helper()
	const pack = `cd "$1" && truncate -s 320M xfs && mkfs.xfs -q xfs && xz -c xfs | base64 -w 0`
	packed, err := exec.CommandContext(l.Context(), "sh", "-ec", pack, "sh", l.TempDir()).Output()
	if err != nil {
		l.Fatalf("making an xfs (Debian's xfsprogs and xz-utils): %v", err)
	}
	l.onNode(node, fmt.Sprintf("echo %s | base64 -d | busybox xzcat | dd of=%[2]s bs=64k iflag=fullblock conv=sparse status=none && truncate -s 320M %[2]s", packed, file))
}

// onNodeTwo is the writer on the node that keeps its power.
func onNodeTwo(writer string) string {
	return strings.Replace(writer, "    spec:\n", "    spec:\n      nodeSelector: {kubernetes.io/hostname: node-2}\n", 1)
}

// sizesAreLimits fills a volume of 64 MiB, beside which another one goes on, and lets it grow. The pod that fills it has
// the claim "data" of the namespace, as the writer has, which fails.
func (l *lab) sizesAreLimits(ns string) {
	l.Helper()
	l.apply(ns, sized("other", "64Mi")+strings.NewReplacer("name: listener", "name: neighbour", "claimName: data", "claimName: other").Replace(readerPod))
	l.wait(ns, "condition=Ready", "pod/neighbour")
	fill := func(pod string, from, count int) error {
		_, err := l.tryKubectl("", "-n", ns, "exec", pod, "--",
			"dd", "if=/dev/zero", "of=/data/fill", "bs=1M", fmt.Sprintf("seek=%d", from), fmt.Sprintf("count=%d", count), "conv=notrunc,fsync")
		return err
	}
	if err := fill("listener", 0, 60); err != nil {
		l.Errorf("60 MiB do not fit into a volume of 64 MiB: %v", err)
	}
	if out := l.kubectl("-n", ns, "exec", "listener", "--", "df", "-k", "/data"); !strings.Contains(out, " 65536 ") {
		l.Errorf("df of a volume of 64 MiB shows\n%s", out)
	}
	if err := fill("listener", 60, 5); err == nil {
		l.Error("65 MiB fit into a volume of 64 MiB")
	}
	if err := fill("neighbour", 0, 60); err != nil {
		l.Errorf("beside a full volume, 60 MiB do not fit into another one of 64 MiB: %v", err)
	}
	l.kubectl("-n", ns, "patch", "pvc", "data", "--patch", `{"spec": {"resources": {"requests": {"storage": "128Mi"}}}}`)
	l.wait(ns, "jsonpath={.status.capacity.storage}=128Mi", "pvc/data")
	l.eventually("the volume to grow", func() string {
		if err := fill("listener", 60, 60); err != nil {
			return err.Error()
		}
		return ""
	})
	if err := fill("listener", 120, 10); err == nil {
		l.Error("130 MiB fit into a volume that has grown to 128 MiB")
	}
}
