//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
)

// applicationsPod runs testdata/applications.sh as a user of the image.
const applicationsPod = `apiVersion: v1
kind: Pod
metadata: {name: applications}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: %s
    args: [/data, "60"]
    securityContext: %s
    volumeMounts: [{name: data, mountPath: /data}, {name: local, mountPath: /tmp}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}, {name: local, emptyDir: {}}]
---
`

// applicationsKeepTheirData: SQLite with its own locks, git, and PostgreSQL work on a volume as their users have them
// work, while stunnel is killed once under each.
func applicationsKeepTheirData(l *lab) {
	root := strings.TrimSpace(l.lab("applications"))
	image := strings.TrimSpace(l.lab("image", "build", "efs-stunnel/applications:e2e", "--add", root+":/",
		"--add", "test/e2e/testdata/applications.sh:/applications.sh", "--entrypoint", "/bin/sh", "--entrypoint", "/applications.sh"))
	ns := l.namespace("applications")
	asNobody := strings.Replace(restricted, "{", "{runAsUser: 65534, runAsGroup: 65534, ", 1)
	l.apply(ns, claim("data", class, "file_system_id: "+shared)+fmt.Sprintf(applicationsPod, image, asNobody))
	var killed []int // under which of those that had begun
	l.eventually("the applications to end", func() string {
		state := l.kubectl("-n", ns, "get", "pod", "applications", "-o", "jsonpath={.status.phase} {.spec.nodeName}")
		phase, node, _ := strings.Cut(state, " ")
		if phase == "Pending" {
			return "the pod is Pending"
		}
		log, err := l.podLog(ns, "applications")
		switch begun := strings.Count(log, "BEGIN"); {
		case phase == "Failed":
			l.Fatalf("the applications failed: %v\n%s", err, log)
		case phase == "Succeeded" && err == nil:
			if !strings.Contains(log, "all is stored") || !slices.Equal(killed, []int{1, 2, 3, 4}) {
				l.Errorf("the tunnel was killed under %v of the applications 1 to 4:\n%s", killed, log)
			}
			return ""
		case begun > 0 && !slices.Contains(killed, begun):
			l.onNode(node, "pkill -KILL -x stunnel")
			killed = append(killed, begun)
		}
		return fmt.Sprintf("the pod is %s: %s", phase, log)
	})
}
