//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// originalPort is another one than the product would assign.
const originalPort = 20495

// originalIsReplaced follows docs/tasks/migrate-from-the-original.md while a pod writes, which is not interrupted.
func originalIsReplaced(l *lab) {
	l.installOriginal()
	ns := l.namespace("original")
	data := l.originalVolume(ns, originalPort)
	l.apply(ns, claim("data", class, "volume_name: data")+writerSet)
	l.wait(ns, "jsonpath={.status.phase}=Bound", "pvc/data")
	data.waitForLines(1)
	_, writer := l.writerOf(ns)

	old := strings.Fields(l.kubectl("-n", system, "get", "pods", "-o", "name", "-l", "app=efs-stunnel"))
	l.kubectl("-n", system, "scale", "deployment/efs-manager", "--replicas=0")
	l.kubectl("-n", system, "delete", "deployment", "efs-manager")
	l.kubectl("-n", system, "delete", "daemonset", "efs-stunnel", "--cascade=orphan")
	data.logPause("the product is installed beside the original", func() { l.run("hack/demo/install") })
	data.logPause("the original's pods are deleted", func() {
		l.kubectl(append([]string{"-n", system, "delete", "--timeout=" + limit.String()}, old...)...)
	})
	l.expectSameWriter(ns, writer)
	if table := l.table(); !strings.Contains(table, fmt.Sprintf("stunnel_port: %d", originalPort)) {
		l.Errorf("the original's port is not in the table:\n%s", table)
	}

	data.waitForAdoption()
	l.kubectl("-n", ns, "delete", "statefulset", "scribe", "--cascade=foreground", "--timeout="+limit.String())
}

// originalVolumeIsAdopted, and cleaned up like any other.
func originalVolumeIsAdopted(l *lab) {
	ns := l.namespace("adopted")
	data := l.originalVolume(ns, l.portOf(shared))
	l.apply(ns, claim("data", class, "volume_name: data"))
	l.wait(ns, "jsonpath={.status.phase}=Bound", "pvc/data")
	data.write("of the original system")
	data.waitForAdoption()
	data.expectFile("file", "of the original system")
	l.kubectl("-n", ns, "delete", "pvc", "data")
	l.wait(ns, "delete", "pv/"+data.volume)
	data.waitForRemoved()
}

// waitForAdoption waits until a volume of the original system has its annotation and its owner.
func (d directory) waitForAdoption() {
	d.lab.Helper()
	d.lab.wait("default", `jsonpath={.metadata.annotations.efs-stunnel\.gnuthought\.com/path}=`+d.path, "pv/"+d.volume)
	if diff := cmp.Diff([]string{d.volume}, d.owners()); diff != "" {
		d.lab.Errorf("owners mismatch (-want +got):\n%s", diff)
	}
}

// portOf returns a file system's port in the table.
func (l *lab) portOf(fileSystem string) int {
	l.Helper()
	var table struct {
		Targets map[string]struct {
			Port int `json:"stunnel_port"`
		} `json:"efs_stunnel_targets"`
	}
	if err := yaml.Unmarshal([]byte(l.table()), &table); err != nil {
		l.Fatal(err)
	}
	return table.Targets[fileSystem].Port
}

// original has the names, the table and the ports of the original system. Its own images are for OpenShift
// on AWS, so a stunnel that is configured by hand replaces its node pods, and no program its manager.
const original = `apiVersion: v1
kind: ConfigMap
metadata: {name: efs-stunnel}
data:
  efs-stunnel.yaml: |
    efs_stunnel_targets:
      %s:
        stunnel_port: %d
        mount_target_ip_by_subnet: {}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: efs-manager}
spec:
  selector: {matchLabels: {app: efs-manager}}
  template:
    metadata: {labels: {app: efs-manager}}
    spec:
      containers: [{name: main, image: "registry.lab:5000/lab/toolbox:1", command: [sleep, infinity]}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: efs-stunnel}
spec:
  selector: {matchLabels: {app: efs-stunnel}}
  template:
    metadata: {labels: {app: efs-stunnel}}
    spec:
      hostNetwork: true
      terminationGracePeriodSeconds: 1
      containers:
      - name: stunnel
        image: registry.lab:5000/lab/toolbox:1
        command: [/usr/bin/stunnel4, /config/stunnel.conf]
        volumeMounts: [{name: config, mountPath: /config}]
      volumes: [{name: config, configMap: {name: original}}]
---
`

const originalConfig = `foreground = yes
pid =
[%s]
client = yes
accept = 127.0.0.1:%d
connect = %s:2049
connect = %s:2049
failover = prio
CAfile = /config/ca.crt
verifyChain = yes
`

func (l *lab) installOriginal() {
	l.Helper()
	near, far := l.mountTargets(shared, "node-1")
	config := filepath.Join(l.TempDir(), "stunnel.conf")
	text := fmt.Sprintf(originalConfig, shared, originalPort, near.Address, far.Address)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		l.Fatal(err)
	}
	l.kubectl("apply", "-f", "deploy/kustomize/base/namespace.yaml")
	l.kubectl("-n", system, "create", "configmap", "original",
		"--from-file="+config, "--from-file=ca.crt="+filepath.Join(l.dir, "pki", "efs-ca.crt"))
	l.apply(system, fmt.Sprintf(original, shared, originalPort))
	l.kubectl("-n", system, "rollout", "status", "daemonset/efs-stunnel", "--timeout="+limit.String())
}

// originalVolume makes what the original system makes for a claim: a volume with its two annotations,
// and its directory.
func (l *lab) originalVolume(ns string, port int) directory {
	l.Helper()
	data := directory{lab: l, volume: "efs-" + ns, fileSystem: shared, path: "/" + ns + "/data"}
	if err := os.MkdirAll(data.file(""), 0o777); err != nil {
		l.Fatal(err)
	}
	l.apply(ns, fmt.Sprintf(`apiVersion: v1
kind: PersistentVolume
metadata:
  name: %s
  labels: {file_system_id: %[2]s, volume_name: data}
  annotations: {pv.kubernetes.io/provisioned-by: gnuthought.com/efs-stunnel, efs-stunnel.gnuthought.com/file-system-id: %[2]s}
spec:
  accessModes: [ReadWriteMany]
  capacity: {storage: 1Gi}
  claimRef: {apiVersion: v1, kind: PersistentVolumeClaim, namespace: %s, name: data}
  mountOptions: [port=%d]
  nfs: {server: 127.0.0.1, path: %s}
  persistentVolumeReclaimPolicy: Delete
  storageClassName: efs-stunnel
---
`, data.volume, shared, ns, port, data.path))
	return data
}
