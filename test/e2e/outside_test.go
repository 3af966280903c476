//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// managerServesFromOutside runs the manager on this machine, as docs/operations.md says, with the
// rights of the shipped roles.
func managerServesFromOutside(l *lab) {
	ns := l.namespace("outside")
	l.kubectl("-n", system, "scale", "deployment/efs-manager", "--replicas=0")
	l.Cleanup(func() {
		l.kubectl("-n", system, "scale", "deployment/efs-manager", "--replicas=2")
		l.kubectl("-n", system, "rollout", "status", "deployment/efs-manager", "--timeout="+limit.String())
	})
	l.wait(system, "delete", "pod", "-l", "app.kubernetes.io/component=manager")
	end := l.startManager()
	l.apply(ns, claim("data", class)+pod("persistentVolumeClaim: {claimName: data}", ""))
	data := l.claimed(ns, "data")
	l.wait(ns, "condition=Ready", "pod/user")
	l.inPod(ns, "echo outside > /data/file")
	data.want("file", "outside\n")
	l.kubectl("-n", ns, "delete", "pod", "user")
	l.kubectl("-n", ns, "delete", "pvc", "data")
	l.wait(ns, "delete", "pv/"+data.volume)
	data.wantGone()
	end()
}

// startManager runs the program of the image, with the token of its service account and a key for
// the stand-in's API. The test fails if it does not end well.
func (l *lab) startManager() (end func()) {
	l.Helper()
	kubeconfig := filepath.Join(l.TempDir(), "kubeconfig")
	text, err := os.ReadFile(filepath.Join(l.dir, "kubeconfig"))
	if err != nil {
		l.Fatal(err)
	}
	if err := os.WriteFile(kubeconfig, text, 0o600); err != nil {
		l.Fatal(err)
	}
	token := l.kubectl("-n", system, "create", "token", "efs-manager")
	l.kubectl("config", "--kubeconfig", kubeconfig, "set-credentials", "efs-manager", "--token="+token)
	l.kubectl("config", "--kubeconfig", kubeconfig, "set-context", "--current", "--user=efs-manager")

	log, err := os.Create(filepath.Join(l.TempDir(), "log"))
	if err != nil {
		l.Fatal(err)
	}
	defer log.Close()
	cmd := exec.CommandContext(l.Context(), filepath.Join(l.root, "bin/images/programs/manager"),
		"--kubeconfig="+kubeconfig, "--worker-image=registry.lab:5000/efs-stunnel/efs-worker:dev", "--worker-image-pull-policy=Always",
		"--aws-region=us-east-1", "--vpc-id=vpc-0123456789abcdef0", "--efs-polling-interval=10s", "--http-address=127.0.0.1:0",
		"--leader-elect-lease-duration=60s", "--leader-elect-renew-deadline=45s") // as in the overlay, for a busy host
	cmd.Env = append(os.Environ(), fmt.Sprintf("AWS_ENDPOINT_URL_EFS=http://127.0.0.1:%d", l.efsPort()),
		"AWS_ACCESS_KEY_ID=AKIALABLABLABLABLAB0", "AWS_SECRET_ACCESS_KEY=the-secret-of-every-lab", "AWS_EC2_METADATA_DISABLED=true")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() {
		if said, err := os.ReadFile(log.Name()); l.Failed() {
			l.Logf("the manager said, %v:\n%s", err, said)
		}
	})
	return func() {
		l.Helper()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			l.Errorf("ending the manager: %v", err)
		}
		if err := cmd.Wait(); err != nil {
			l.Errorf("the manager ended with %v", err)
		}
	}
}

// efsPort is that of the EFS API on this machine's loopback.
func (l *lab) efsPort() int {
	l.Helper()
	text, err := os.ReadFile(filepath.Join(l.dir, "lab.json"))
	if err != nil {
		l.Fatal(err)
	}
	var lab struct{ EFSAPIPort int }
	if err := json.Unmarshal(text, &lab); err != nil {
		l.Fatal(err)
	}
	return lab.EFSAPIPort
}
