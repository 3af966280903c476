//go:build e2e || acceptance

package e2e

import (
	"fmt"
	"strings"
)

// labImage is the image of pods in the lab. Manifests name it, and apply puts the cluster's in its place.
const labImage = "registry.lab:5000/lab/toolbox:1"

// restricted is the security context of containers.
const restricted = "{allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}"

// claim returns the manifest of a claim, with labels of its selector as key: value.
func claim(name, class string, labels ...string) string {
	selector := ""
	if len(labels) > 0 {
		selector = fmt.Sprintf("  selector: {matchLabels: {%s}}\n", strings.Join(labels, ", "))
	}
	return fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %q}
spec:
  accessModes: [ReadWriteMany]
  storageClassName: %q
  resources: {requests: {storage: 1Gi}}
%s---
`, name, class, selector)
}

// pod returns the manifest of the pod user, which has a volume at /data and sleeps; mount adds fields of the
// mount.
func pod(volume, mount string) string {
	return user("{name: data, mountPath: /data"+mount+"}", "{name: data, "+volume+"}")
}

// user returns the manifest of the pod user, with mounts and volumes.
func user(mounts, volumes string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: `+labImage+`
    command: [sleep, infinity]
    securityContext: `+restricted+`
    volumeMounts: [%s]
  volumes: [%s]
---
`, mounts, volumes)
}

// userAnywhere returns the manifest of the pod user, with each of the claims mounted at /<claim>.
func userAnywhere(claims ...string) string {
	var mounts, volumes []string
	for _, claim := range claims {
		mounts = append(mounts, fmt.Sprintf("{name: %[1]s, mountPath: /%[1]s}", claim))
		volumes = append(volumes, fmt.Sprintf("{name: %[1]s, persistentVolumeClaim: {claimName: %[1]s}}", claim))
	}
	return user(strings.Join(mounts, ", "), strings.Join(volumes, ", "))
}

// sharedVolume returns the manifest of a SharedVolume, with further fields of its spec.
func sharedVolume(name, fileSystem string, fields ...string) string {
	return fmt.Sprintf(`apiVersion: efs-stunnel.gnuthought.com/v1alpha1
kind: SharedVolume
metadata: {name: %s}
spec: {fileSystemID: %s, %s}
---
`, name, fileSystem, strings.Join(fields, ", "))
}

// replicaSet adds the name of each pod to a file of its own claim, whose class is %s.
const replicaSet = `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: replica}
spec:
  replicas: 2
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: replica}}
  template:
    metadata: {labels: {app: replica}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: ` + labImage + `
        command: [sh, -ec, "hostname >> /data/names; exec sleep infinity"]
        securityContext: ` + restricted + `
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteMany], storageClassName: %s, resources: {requests: {storage: 1Gi}}}
---
`
