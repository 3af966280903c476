//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/google/go-cmp/cmp"
)

// Settings of the manager on this machine.
const (
	failedSetups = 2
	restored     = "fs-0123456789abcdefc" // its marker has the id of shared
)

// withManagerOutside runs scenarios with the only manager on this machine, as
// docs/tasks/manager-outside.md describes, with the rights of the shipped roles.
func withManagerOutside(scenarios []scenario) func(*lab) {
	return func(l *lab) {
		l.kubectl("-n", system, "scale", "deployment/efs-manager", "--replicas=0")
		l.Cleanup(func() {
			l.kubectl("-n", system, "scale", "deployment/efs-manager", "--replicas=2")
			l.kubectl("-n", system, "rollout", "status", "deployment/efs-manager", "--timeout="+limit.String())
		})
		l.wait(system, "delete", "pod", "-l", "app.kubernetes.io/component=manager")
		end := l.startManager("--provision-backoff-interval=2s",
			fmt.Sprintf("--failed-retry-threshold=%d", failedSetups), "--file-system-aliases="+restored+"="+shared)
		serial(scenarios)(l)
		end()
	}
}

func managerServesFromOutside(l *lab) {
	ns := l.namespace("outside")
	l.apply(ns, claim("data", class)+pod("persistentVolumeClaim: {claimName: data}", ""))
	data := l.waitForClaim(ns, "data")
	l.wait(ns, "condition=Ready", "pod/user")
	l.inPod(ns, "echo outside > /data/file")
	data.expectFile("file", "outside\n")
	l.kubectl("-n", ns, "delete", "pod", "user")
	l.kubectl("-n", ns, "delete", "pvc", "data")
	l.wait(ns, "delete", "pv/"+data.volume)
	data.waitForRemoved()
}

// failingClaimIsGivenUp: the claim's class refuses a directory with content, until the class is created
// again with other parameters.
func failingClaimIsGivenUp(l *lab) {
	const name = "e2e-strict"
	ns := l.namespace("given-up")
	there := directory{lab: l, fileSystem: shared, path: "/" + ns + "/there"}
	if err := os.MkdirAll(there.file(""), 0o755); err != nil {
		l.Fatal(err)
	}
	there.write("unowned")
	strict := func(adopt string) string {
		return classText(name, "default_file_system_id: "+shared, "adopt_existing: '"+adopt+"'")
	}
	l.classes(strict("false"), name)
	l.apply(ns, claim("data", name, "volume_name: there"))
	l.wait(ns, `jsonpath={.metadata.annotations.efs-stunnel\.gnuthought\.com/rejected}=true`, "pvc/data")
	reason := l.kubectl("-n", ns, "get", "pvc", "data", "-o", `jsonpath={.metadata.annotations.efs-stunnel\.gnuthought\.com/reject-reason}`)
	for _, want := range []string{fmt.Sprintf("gave up after %d failed setups", failedSetups), "has content and no owner"} {
		if !strings.Contains(reason, want) {
			l.Errorf("the claim is rejected because %q, want %q", reason, want)
		}
	}

	l.kubectl("delete", "storageclass", name) // its parameters cannot be edited
	l.apply(ns, strict("true"))
	data := l.waitForClaim(ns, "data")
	data.expectFile("file", "unowned")
	l.eventually("the claim to be rejected no longer", func() string {
		annotations := l.kubectl("-n", ns, "get", "pvc", "data", "-o", "jsonpath={.metadata.annotations}")
		if strings.Contains(annotations, "efs-stunnel.gnuthought.com/") {
			return "it has the annotations " + annotations
		}
		return ""
	})
}

// aliasedCopyIsServed: a mount Job accepts a file system whose marker names the one that it was copied
// from. The mount targets are made last, so that no Job writes a marker before.
func aliasedCopyIsServed(l *lab) {
	ns := l.namespace("restored")
	l.lab("efs", "create-file-system", "--id", restored, "--fs-name", "restored")
	state := directory{lab: l, fileSystem: restored, path: "/.efs-stunnel"}
	if err := os.Mkdir(state.file(""), 0o700); err != nil {
		l.Fatal(err)
	}
	if err := os.WriteFile(state.file("file-system-id"), []byte(shared+"\n"), 0o600); err != nil {
		l.Fatal(err)
	}
	saved := directory{lab: l, fileSystem: restored, path: "/" + ns + "/data"}
	if err := os.MkdirAll(saved.file(""), 0o755); err != nil {
		l.Fatal(err)
	}
	saved.write("of the original")
	l.makeMountTargets(restored, "us-east-1a", "us-east-1b")

	l.apply(ns, claim("data", class, "volume_name: data", "file_system_id: "+restored))
	data := l.waitForClaim(ns, "data")
	data.expectFile("file", "of the original")
	if diff := cmp.Diff([]string{data.volume}, data.owners()); diff != "" {
		l.Errorf("owners mismatch (-want +got):\n%s", diff)
	}
	state.expectFile("file-system-id", shared+"\n")
	l.kubectl("-n", ns, "delete", "pvc", "data")
	l.wait(ns, "delete", "pv/"+data.volume)
	l.deleteFileSystem(restored)
}

// startManager runs the program of the image, with the token of its service account, a key for the
// stand-in's API, and settings of the test. The test fails if the manager ends with an error.
func (l *lab) startManager(settings ...string) (end func()) {
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
	settings = append(settings,
		"--kubeconfig="+kubeconfig, "--worker-image=registry.lab:5000/efs-stunnel/efs-worker:dev", "--worker-image-pull-policy=Always",
		"--aws-region=us-east-1", "--vpc-id=vpc-0123456789abcdef0", "--efs-polling-interval=10s", "--http-address=127.0.0.1:0",
		"--leader-elect-lease-duration=60s", "--leader-elect-renew-deadline=45s") // as in the overlay, for a busy host
	cmd := exec.CommandContext(l.Context(), filepath.Join(l.root, "bin/images/programs/manager"), settings...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("AWS_ENDPOINT_URL_EFS=http://127.0.0.1:%d", l.efsPort()),
		"AWS_ACCESS_KEY_ID=AKIALABLABLABLABLAB0", "AWS_SECRET_ACCESS_KEY=the-secret-of-every-lab", "AWS_EC2_METADATA_DISABLED=true")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // an interrupted test cleans nothing up
	if err := cmd.Start(); err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() {
		if text, err := os.ReadFile(log.Name()); l.Failed() {
			l.Logf("the manager's log, %v:\n%s", err, text)
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

// efsPort returns the port of the EFS API on this machine's loopback.
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
