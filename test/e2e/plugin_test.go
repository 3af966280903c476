//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// diagnosis is the output of the plugin's doctor as JSON.
type diagnosis struct {
	Level string `json:"level"`
	Cause struct {
		Cause  string `json:"cause"`
		Remedy string `json:"remedy"`
	} `json:"cause"`
}

// waitForCause waits until the plugin's doctor names a cause for a subject.
func (l *lab) waitForCause(cause string, subject ...string) {
	l.Helper()
	l.eventually("doctor to name "+cause, func() string {
		out, code := l.plugin(append([]string{"doctor", "-o", "json"}, subject...)...)
		var d diagnosis
		if err := json.Unmarshal([]byte(out), &d); err != nil {
			return err.Error()
		}
		switch isProblem := d.Level == "problem"; {
		case d.Cause.Cause != cause:
			return "it names " + d.Cause.Cause
		case isProblem && (code != 1 || d.Cause.Remedy == ""):
			l.Errorf("a problem with exit code %d and the remedy %q", code, d.Cause.Remedy)
		case !isProblem && code != 0:
			l.Errorf("no problem, with exit code %d", code)
		}
		return ""
	})
}

// pluginExplainsClaims: the causes that its doctor names for claims.
func pluginExplainsClaims(l *lab) {
	ns := l.namespace("explained")
	l.claimsAreDiagnosed(ns)
	if out, code := l.plugin("doctor", "--as=system:serviceaccount:"+ns+":default"); code != 2 || !strings.Contains(out, "you have no right to list") {
		l.Errorf("a user without rights: exit code %d\n%s", code, out)
	}
}

// pluginNamesCauses breaks the installation in one way after the other, as people and clouds do. The
// plugin's doctor has to name each cause.
func pluginNamesCauses(l *lab) {
	l.eventually("the plugin to call the installation healthy", func() string {
		out, code := l.plugin("status")
		if code != 0 || !strings.Contains(out, "efs-stunnel in namespace "+system+": healthy") {
			return fmt.Sprintf("exit code %d: %s", code, out)
		}
		return ""
	})
	l.collectHasNoSecret()
	l.nodesAreExamined()
	l.fileSystemsAreDiagnosed()
	l.installationIsDiagnosed(l.namespace("doctor"))
}

// nodesAreExamined by pods of preflight: both can mount, and reach the mount target of their zone. Without the
// authority of its certificate they refuse it. No pod is left.
func (l *lab) nodesAreExamined() {
	l.Helper()
	authority := filepath.Join(l.dir, "pki", "efs-ca.crt")
	out, code := l.plugin("preflight", "--nodes", "--file-system="+shared, "--ca-file="+authority, "-o", "json")
	if found := strings.Count(out, "NFSv4 loaded), 1 mount targets answer"); code != 0 || found != 2 {
		l.Errorf("preflight ended with code %d, and finds %d of 2 nodes suitable:\n%s", code, found, out)
	}
	out, code = l.plugin("preflight", "--nodes", "--file-system="+shared)
	if found := strings.Count(out, "(Certificate)"); code != 1 || found != 2 {
		l.Errorf("preflight without the server's authority ended with code %d, and %d of 2 nodes refuse its certificate:\n%s", code, found, out)
	}
	l.eventually("the pods of preflight to be gone", func() string {
		return l.kubectl("-n", system, "get", "pods", "-l", wellknown.LabelAppComponent+"=preflight", "-o", "name")
	})
}

// collectHasNoSecret looks for tokens, keys and Secrets in everything that an issue would have.
func (l *lab) collectHasNoSecret() {
	l.Helper()
	file := filepath.Join(l.TempDir(), "collected.tar.gz")
	if _, code := l.plugin("collect", "-o", file); code != 0 {
		l.Errorf("collect ended with code %d", code)
	}
	secret := regexp.MustCompile(`eyJ[A-Za-z0-9_-]{20}|PRIVATE KEY|(?m:^kind: Secret$)`)
	collected := l.contents(file)
	for name, content := range collected {
		if found := secret.FindString(content); found != "" {
			l.Errorf("%s has %s", name, found)
		}
	}
	for _, part := range []string{"README.txt", "status.txt", "doctor.txt", "manager.log", "agent.log", "supervisor.log"} {
		if collected[part] == "" {
			l.Errorf("what was collected lacks %s", part)
		}
	}
}

// contents returns the files of a compressed tar, by their last names.
func (l *lab) contents(file string) map[string]string {
	l.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		l.Fatal(err)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		l.Fatal(err)
	}
	files, archive := map[string]string{}, tar.NewReader(unzipped)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			l.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			l.Fatal(err)
		}
		files[path.Base(header.Name)] += string(content)
	}
}

// usageIsCounted by a survey Job, of which the manager reads the log.
func (l *lab) usageIsCounted(ns string) {
	l.Helper()
	l.apply(ns, claim("counted", class, "file_system_id: "+shared))
	l.waitForClaim(ns, "counted").write(strings.Repeat("x", 3<<20))
	if out, code := l.plugin("usage", "--now", "-n", ns); code != 0 || !strings.Contains(out, "3.0 MiB") {
		l.Errorf("usage ended with code %d:\n%s", code, out)
	}
}

func (l *lab) claimsAreDiagnosed(ns string) {
	l.Helper()
	taken := directory{lab: l, fileSystem: shared, path: "/" + ns + "/taken"}
	if err := os.MkdirAll(taken.file(""), 0o755); err != nil {
		l.Fatal(err)
	}
	taken.write("unowned")
	l.classes(classText("doctor-wrong", "unheard_of: '1'")+
		classText("doctor-strict", "default_file_system_id: "+shared, "adopt_existing: 'false'")+
		waiting(classText("doctor-waits", "default_file_system_id: "+shared)),
		"doctor-wrong", "doctor-strict", "doctor-waits")
	kept := strings.Replace(claim("goes", class), "metadata: {", "metadata: {finalizers: [example.com/kept], ", 1)
	l.apply(ns, claim("no-class", "doctor-missing")+claim("wrong-class", "doctor-wrong")+
		strings.Replace(claim("wrong-mode", class), "  storageClassName", "  volumeMode: Block\n  storageClassName", 1)+
		claim("elsewhere", class, "file_system_id: fs-00000000")+claim("waits", "doctor-waits")+
		claim("refused", "doctor-strict", "volume_name: taken")+kept)
	l.waitForClaim(ns, "goes")
	l.kubectl("-n", ns, "delete", "pvc", "goes", "--wait=false")
	for name, cause := range map[string]string{
		"nowhere": "ClaimMissing", "no-class": "ClassMissing", "wrong-class": "ClassRefused", "wrong-mode": "ClaimRejected",
		"elsewhere": "FileSystemUnknown", "waits": "WaitsForConsumer", "refused": "SetupFailed", "goes": "ClaimTerminating",
	} {
		l.waitForCause(cause, "pvc", name, "-n", ns)
	}
	l.kubectl("-n", ns, "patch", "pvc", "goes", "--type=merge", "-p", `{"metadata": {"finalizers": null}}`)
	l.kubectl("-n", ns, "delete", "pvc", "--all", "--timeout="+limit.String())
	l.kubectl("delete", "storageclass", "doctor-wrong")
}

// fileSystemsAreDiagnosed with one that has no mount target, and then mount targets that refuse.
func (l *lab) fileSystemsAreDiagnosed() {
	l.Helper()
	fileSystem := strings.TrimSpace(l.lab("efs", "create-file-system", "--fs-name", "doctor"))
	l.waitForCause("FileSystemUnusable")
	l.makeMountTargets(fileSystem, "us-east-1a", "us-east-1b")
	l.wait(system, "create", "pvc/efs-stunnel-"+fileSystem)
	near, far := l.mountTargets(fileSystem, "node-1")
	for _, target := range []mountTarget{near, far} {
		l.lab("efs", "update-mount-target", target.ID, "--mode=refuse")
	}
	l.waitForCause("TunnelUnhealthy", "node", "node-1")
	l.deleteFileSystem(fileSystem)
}

// installationIsDiagnosed while a ConfigMap cannot be read, and without manager or agents.
func (l *lab) installationIsDiagnosed(ns string) {
	l.Helper()
	table := l.table()
	l.putTable("- neither targets nor ports\n")
	l.waitForCause("TableUnreadable", shared)
	l.putTable(table)

	l.kubectl("-n", system, "delete", "daemonset", "efs-stunnel", "--cascade=orphan")
	l.waitForCause("AgentsMissing", "node", "node-1")
	l.run("hack/demo/install") // the DaemonSet adopts the pods
	l.waitForAgents()

	l.kubectl("-n", system, "scale", "deployment/efs-manager", "--replicas=0")
	l.wait(system, "delete", "pod", "-l", "app.kubernetes.io/component=manager")
	l.apply(ns, claim("alone", class))
	l.waitForCause("ManagerDown", "pvc", "alone", "-n", ns)
	l.kubectl("-n", system, "scale", "deployment/efs-manager", "--replicas=2")
	l.kubectl("-n", system, "rollout", "status", "deployment/efs-manager", "--timeout="+limit.String())
	l.waitForClaim(ns, "alone")
}
