//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// version is one of the product, with its images in the lab's registry.
type version struct {
	folder string // of its manifests
	tag    string
}

// versionsMix: the programs of the version before this one work with this one's, in both directions, as they
// do while an installation is upgraded or returns to the version before. A pod writes all the time.
func versionsMix(l *lab) {
	today, previous := version{l.root, "dev"}, l.previousVersion()
	ns := l.namespace("skew")
	l.apply(ns, claim("data", class)+writerSet)
	data := l.waitForClaim(ns, "data")
	data.waitForLines(1)
	_, writer := l.writerOf(ns)
	l.Cleanup(func() { l.run("hack/demo/install") })

	data.logPause("agents and mount Jobs are of the version before", func() {
		l.install(l.manager(today, previous), l.object(previous, "DaemonSet", "efs-stunnel"))
	})
	l.claimComesAndGoes(ns, "before")
	data.logPause("managers are of the version before, agents and mount Jobs of this one", func() {
		l.install(l.manager(previous, today), l.object(today, "DaemonSet", "efs-stunnel"))
	})
	l.claimComesAndGoes(ns, "after")
	l.expectSameWriter(ns, writer)
}

// previousVersion builds the images of the commit $PREVIOUS: by default the newest release before this
// commit, or the commit before it if there is no release.
func (l *lab) previousVersion() version {
	l.Helper()
	commit := os.Getenv("PREVIOUS")
	if commit == "" {
		release, err := l.git("describe", "--tags", "--abbrev=0", "--match=v*", "HEAD^")
		if err != nil {
			release = "HEAD^"
		}
		commit = release
	}
	v := version{filepath.Join(l.TempDir(), "previous"), "previous"}
	archive := v.folder + ".tar"
	if _, err := l.git("archive", "--output="+archive, commit); err != nil {
		l.Fatalf("the version before, %q ($PREVIOUS, or the newest release), is not in this clone: %v", commit, err)
	}
	if err := os.MkdirAll(filepath.Join(v.folder, "bin"), 0o750); err != nil {
		l.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(l.root, "bin/lab"), filepath.Join(v.folder, "bin/lab")); err != nil {
		l.Fatal(err)
	}
	if out, err := exec.CommandContext(l.Context(), "tar", "-xf", archive, "-C", v.folder).CombinedOutput(); err != nil {
		l.Fatalf("%v: %s", err, out)
	}
	l.Setenv("TAG", v.tag)
	l.run(filepath.Join(v.folder, "hack/images/lab")) // its own, which knows its programs
	return v
}

func (l *lab) git(args ...string) (string, error) {
	out, err := exec.CommandContext(l.Context(), "git", append([]string{"-C", l.root}, args...)...).Output()
	return strings.TrimSpace(string(out)), err
}

// manager returns the Deployment of a version that has its mount Jobs run the mountjob of another one.
func (l *lab) manager(v, mountjob version) string {
	l.Helper()
	const worker = "/efs-worker:"
	return strings.ReplaceAll(l.object(v, "Deployment", "efs-manager"), worker+v.tag, worker+mountjob.tag)
}

// object is one of the version's overlay "lab", with the images of that version.
func (l *lab) object(v version, kind, name string) string {
	l.Helper()
	for text := range strings.SplitSeq(l.kubectl("kustomize", filepath.Join(v.folder, "deploy/kustomize/overlays/lab")), "\n---\n") {
		var object struct {
			Kind     string
			Metadata struct{ Name string }
		}
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			l.Fatal(err)
		}
		if object.Kind == kind && object.Metadata.Name == name {
			return strings.NewReplacer("/efs-manager:dev", "/efs-manager:"+v.tag, "/efs-stunnel:dev", "/efs-stunnel:"+v.tag,
				"/efs-worker:dev", "/efs-worker:"+v.tag).Replace(text)
		}
	}
	l.Fatalf("%s has no %s %s", v.folder, kind, name)
	return ""
}

// install replaces objects of the product, and waits until its pods have started.
func (l *lab) install(objects ...string) {
	l.Helper()
	l.apply(system, strings.Join(objects, "\n---\n"))
	for _, object := range []string{"deployment/efs-manager", "daemonset/efs-stunnel", "daemonset/efs-read-ahead"} {
		l.kubectl("-n", system, "rollout", "status", object, "--timeout="+limit.String())
	}
}
