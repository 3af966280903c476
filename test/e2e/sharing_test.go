//go:build e2e

package e2e

import (
	"fmt"
	"strings"
)

// claimIsReadFromAnotherNamespace that its owner names. Root in the reader's pod, which asks for nothing else, cannot
// write. The directory outlives the owner's claim, and goes with the reader's.
func claimIsReadFromAnotherNamespace(l *lab) {
	const class = "e2e-published"
	l.classes(classText(class, "share_read_only: 'true'"), class)
	owner, reader := l.namespace("publisher"), l.namespace("reader")
	l.apply(owner, claim("data", class, "file_system_id: "+shared))
	data := l.waitForClaim(owner, "data")
	l.kubectl("-n", owner, "annotate", "pvc", "data", "efs-stunnel.gnuthought.com/readers="+reader)
	data.write("of the owner")

	reads := fmt.Sprintf(`metadata: {name: "data", annotations: {efs-stunnel.gnuthought.com/reads: %s/data}}`, owner)
	l.apply(reader, strings.NewReplacer(`metadata: {name: "data"}`, reads, "ReadWriteMany", "ReadOnlyMany").Replace(claim("data", class)))
	read := l.waitForVolume(reader, "data")
	l.startUser(reader, "data")
	const cannotWrite = `grep -qx "of the owner" /data/file
		if echo of a reader > /data/file; then exit 1; fi
		if rm /data/file; then exit 1; fi`
	l.inPod(reader, cannotWrite)

	l.deleteClaim(owner, "data", data.volume)
	l.inPod(reader, cannotWrite)
	data.expectFile("file", "of the owner")
	l.deleteUser(reader)
	l.deleteClaim(reader, "data", read)
	data.waitForRemoved()
}

// forgedVolumeRemovesNothing: the deletions of one of two claims of a directory, and of a forged volume, leave it
// to the other claim.
func forgedVolumeRemovesNothing(l *lab) {
	ns := l.namespace("forged")
	labels := []string{"volume_name: common", "file_system_id: " + shared}
	l.apply(ns, claim("one", class, labels...)+claim("other", class, labels...))
	one, other := l.waitForClaim(ns, "one"), l.waitForClaim(ns, "other")
	other.write("of both")
	l.kubectl("-n", ns, "delete", "pvc", "one")
	forged := l.forgedVolume(ns, other)
	l.wait(ns, "delete", "pv/"+one.volume, "pv/"+forged)
	l.waitForEvent("default", forged, "VolumeDeleteSkipped", "directory kept")
	other.expectFile("file", "of both")
	if owners := other.owners(); len(owners) != 1 || owners[0] != other.volume {
		l.Errorf("%s is of %v, want %s", other.path, owners, other.volume)
	}
}

// forgedVolume creates a volume with the directory of another volume, and with a claim that does not
// exist, so that the binder releases it at once.
func (l *lab) forgedVolume(namespace string, data directory) (name string) {
	l.Helper()
	const uid = "01234567-89ab-cdef-0123-456789abcdef"
	name = "pvc-" + uid
	l.apply(namespace, fmt.Sprintf(`apiVersion: v1
kind: PersistentVolume
metadata:
  name: %s
  annotations:
    pv.kubernetes.io/provisioned-by: gnuthought.com/efs-stunnel
    efs-stunnel.gnuthought.com/file-system-id: %s
    efs-stunnel.gnuthought.com/path: %[3]s
spec:
  accessModes: [ReadWriteMany]
  capacity: {storage: 1Gi}
  claimRef: {apiVersion: v1, kind: PersistentVolumeClaim, namespace: %[4]s, name: forged, uid: %[5]s}
  mountOptions: [port=%[6]d]
  nfs: {server: 127.0.0.1, path: %[3]s}
  persistentVolumeReclaimPolicy: Delete
  storageClassName: efs-stunnel
---
`, name, data.fileSystem, data.path, namespace, uid, l.portOf(data.fileSystem)))
	return name
}
