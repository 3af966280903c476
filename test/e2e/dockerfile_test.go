//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
)

// imagesOfDockerfileServe: a cluster works with the images that users build with hack/images/Dockerfile, as
// make dockerfile has left them. All other scenarios run with those of hack/images/lab.
func imagesOfDockerfileServe(l *lab) {
	built := version{l.root, "dockerfile"}
	for _, image := range []string{"efs-manager", "efs-stunnel", "efs-worker"} {
		file := filepath.Join(l.root, "bin/images/dockerfile", image+".tar")
		if _, err := os.Stat(file); err != nil {
			l.Fatalf("%v: make dockerfile writes it", err)
		}
		l.lab("load", file)
	}
	l.Cleanup(func() { l.run("hack/demo/install") })
	l.install(l.object(built, "Deployment", "efs-manager"), l.object(built, "DaemonSet", "efs-stunnel"),
		l.object(built, "DaemonSet", "efs-read-ahead"))
	claimIsReadOnAnotherNode(l.cluster)
	l.claimComesAndGoes(l.namespace("dockerfile"), "data")
}
