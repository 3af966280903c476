//go:build e2e

package e2e

import "strings"

// publishedClass and publishedClaim are those that a user of the AWS EFS CSI driver has published, but for the
// provisioner and the id of the file system.
const (
	publishedClass = `kind: StorageClass
apiVersion: storage.k8s.io/v1
metadata:
  name: efs-sc-1
provisioner: gnuthought.com/efs-stunnel
mountOptions:
- tls
volumeBindingMode: Immediate # Default
reclaimPolicy: Delete # Default
parameters:
  provisioningMode: efs-ap
  fileSystemId: ` + shared + `
  directoryPerms: "700"
  uid: "1000"
  gid: "1000"
  gidRangeStart: "1000" # optional
  gidRangeEnd: "2000" # optional
  basePath: "/dynamic_provisioning" # optional
---
`
	publishedClaim = `apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: efs-claim-1
spec:
  accessModes:
  - ReadWriteMany
  storageClassName: efs-sc-1
  resources:
    requests:
      storage: 5Gi
---
`
)

// driverClassServesItsClaims: each has an access point of its own, whose user all files are, whoever the pod runs as.
func driverClassServesItsClaims(l *lab) {
	ns := l.namespace("driver")
	l.classes(publishedClass, "efs-sc-1")
	users := userAnywhere("efs-claim-1", "efs-claim-2")
	l.apply(ns, publishedClaim+strings.Replace(publishedClaim, "efs-claim-1", "efs-claim-2", 1)+
		strings.Replace(users, "spec:\n", "spec:\n  securityContext: {runAsUser: 12345, runAsNonRoot: true}\n", 1))
	one, two := l.waitForClaim(ns, "efs-claim-1"), l.waitForClaim(ns, "efs-claim-2")
	l.wait(ns, "condition=Ready", "pod/user")
	l.inPod(ns, `[ "$(id -u)" = 12345 ]; echo of one > /efs-claim-1/out1; echo of two > /efs-claim-2/out2`)
	l.inPod(ns, `[ "$(ls -A /efs-claim-1)" = out1 ] && [ "$(ls -A /efs-claim-2)" = out2 ]`)
	l.expectOwnedFile(shared, one.path+"/out1", "of one\n", 1000, 1000)
	l.expectOwnedFile(shared, two.path+"/out2", "of two\n", 1000, 1000)
	points := map[string]string{}
	for _, data := range []directory{one, two} {
		points[data.volume] = l.kubectl("get", "pv", data.volume, "-o", `jsonpath={.metadata.annotations.efs-stunnel\.gnuthought\.com/access-point-id}`)
		if listing := l.lab("efs", "list", "-o", "json"); points[data.volume] == "" || !strings.Contains(listing, points[data.volume]) {
			l.Errorf("access point %q of volume %s is not in\n%s", points[data.volume], data.volume, listing)
		}
	}
	l.kubectl("-n", ns, "delete", "pod", "user")
	l.kubectl("-n", ns, "delete", "pvc", "efs-claim-1")
	l.wait(ns, "delete", "pv/"+one.volume)
	one.waitForRemoved()
	if listing := l.lab("efs", "list", "-o", "json"); strings.Contains(listing, points[one.volume]) || !strings.Contains(listing, points[two.volume]) {
		l.Errorf("access point %s is to be deleted, and %s is to stay:\n%s", points[one.volume], points[two.volume], listing)
	}
	two.expectFile("out2", "of two\n")
}
