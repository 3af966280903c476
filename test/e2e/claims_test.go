//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/google/go-cmp/cmp"
)

const class = "efs-stunnel"

// examplesRun does what make demo begins with, and in the long run what it proposes to do next.
func examplesRun(l *lab) {
	ns := l.namespace("demo")
	examples := "hack/demo/first"
	if *long {
		examples = "hack/demo/all"
	}
	l.kubectl("-n", ns, "apply", "-k", examples)
	l.expectSharedClaim(ns)
	if *long {
		l.expectSeparateReplicas(ns, "counter", "data", "name")
	}
}

func (l *lab) expectSharedClaim(ns string) {
	l.Helper()
	data := l.waitForClaim(ns, "efs-example")
	if data.path != "/demo/example" {
		l.Errorf("the claim of the original README got %s", data.path)
	}
	l.wait(ns, "condition=Ready", "pod/writer", "pod/reader")
	nodes := l.kubectl("-n", ns, "get", "pods", "writer", "reader", "-o", "jsonpath={.items[*].spec.nodeName}")
	if a, b, _ := strings.Cut(nodes, " "); a == b {
		l.Errorf("both pods are on %s", a)
	}
	l.eventually("the reader to read", func() string {
		line, err := l.podLog(ns, "reader", "--tail=1")
		if err != nil {
			return err.Error()
		}
		stored, err := os.ReadFile(data.file("lines"))
		if err != nil {
			return err.Error()
		}
		if line == "" || !strings.Contains(string(stored), line+"\n") {
			return "it says " + line
		}
		return ""
	})
	mounts := l.onNode(strings.Fields(nodes)[0], "grep '^127.0.0.1:"+data.path+" ' /proc/mounts")
	for _, option := range []string{"nfs4", "vers=4.1", "hard", "noresvport", "port=2049", "addr=127.0.0.1"} {
		if !strings.Contains(mounts, option) {
			l.Errorf("the node's mount lacks %s: %s", option, mounts)
		}
	}
}

// expectSeparateReplicas waits until each of three replicas has written its name into its own directory.
func (l *lab) expectSeparateReplicas(ns, set, claim, file string) {
	l.Helper()
	l.kubectl("-n", ns, "rollout", "status", "statefulset/"+set, "--timeout="+limit.String())
	var paths []string
	for i := range 3 {
		replica := fmt.Sprintf("%s-%d", set, i)
		data := l.waitForClaim(ns, claim+"-"+replica)
		data.waitForFile(file, replica+"\n") // a running container may not have written yet
		paths = append(paths, data.path)
	}
	if paths[0] == paths[1] || paths[1] == paths[2] || paths[0] == paths[2] {
		l.Errorf("replicas share a directory: %v", paths)
	}
}

func deletionIsExact(l *lab) {
	ns := l.namespace("deletion")
	l.apply(ns, claim("goes", class, "volume_name: goes", "file_system_id: "+shared)+
		claim("stays", class, "volume_name: stays", "file_system_id: "+shared))
	goes, stays := l.waitForClaim(ns, "goes"), l.waitForClaim(ns, "stays")
	goes.write("of a claim that goes")
	stays.write("of a claim that stays")
	beside := directory{lab: l, fileSystem: shared, path: "/" + ns + "/unowned"}
	if err := os.Mkdir(beside.file(""), 0o755); err != nil {
		l.Fatal(err)
	}
	beside.write("unowned")

	l.kubectl("-n", ns, "delete", "pvc", "goes")
	l.wait(ns, "delete", "pv/"+goes.volume)
	goes.waitForRemoved()
	stays.expectFile("file", "of a claim that stays")
	beside.expectFile("file", "unowned")
	if diff := cmp.Diff([]string{stays.volume}, stays.owners()); diff != "" {
		l.Errorf("owners mismatch (-want +got):\n%s", diff)
	}
}

// retainedDataStays: every later claim of its name has it, also one that is created while the last one
// is deleted. Only the reclaim policy of the claim that made the directory counts.
func retainedDataStays(l *lab) {
	ns := l.namespace("retained")
	l.apply(ns, claim("first", class, "volume_name: kept", "reclaim_policy: Retain"))
	first := l.waitForClaim(ns, "first")
	first.write("worth keeping")
	l.kubectl("-n", ns, "delete", "pvc", "first")
	l.wait(ns, "jsonpath={.status.phase}=Released", "pv/"+first.volume)
	l.kubectl("delete", "pv", first.volume, "--timeout="+limit.String())
	first.expectFile("file", "worth keeping")

	successor := func(name string) string { return claim(name, class, "volume_name: kept", "reclaim_policy: Delete") }
	l.apply(ns, successor("second"))
	second := l.waitForClaim(ns, "second")
	second.expectFile("file", "worth keeping")
	l.deleteWhileApplying(ns, "pvc/second", successor("third"))
	third := l.waitForClaim(ns, "third")
	l.wait(ns, "delete", "pv/"+second.volume)
	third.expectFile("file", "worth keeping")
	l.kubectl("-n", ns, "delete", "pvc", "third")
	l.wait(ns, "delete", "pv/"+third.volume)

	l.apply(ns, successor("fourth")+pod("persistentVolumeClaim: {claimName: fourth}", ""))
	fourth := l.waitForClaim(ns, "fourth")
	for _, now := range []directory{second, third, fourth} {
		if now.path != first.path || now.fileSystem != first.fileSystem {
			l.Errorf("volume %s has %s on %s, the first had %s on %s", now.volume, now.path, now.fileSystem, first.path, first.fileSystem)
		}
	}
	l.wait(ns, "condition=Ready", "pod/user")
	l.inPod(ns, `[ "$(cat /data/file)" = "worth keeping" ]`)
}

// deleteWhileApplying deletes an object at the same moment as others are created.
func (l *lab) deleteWhileApplying(namespace, object, others string) {
	l.Helper()
	var errOut string
	var err error
	var deletion sync.WaitGroup
	deletion.Go(func() {
		errOut, err = l.tryKubectl("", "-n", namespace, "delete", object, "--wait=false")
	})
	l.apply(namespace, others)
	deletion.Wait()
	if err != nil {
		l.Fatalf("deleting %s: %v\n%s", object, err, errOut)
	}
}

func ephemeralVolumeIsDeletedWithItsPod(l *lab) {
	ns := l.namespace("ephemeral")
	l.apply(ns, pod(`ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteMany], `+
		`storageClassName: efs-stunnel, resources: {requests: {storage: 1Gi}}}}}`, ""))
	l.wait(ns, "create", "pvc/user-data") // by a controller
	data := l.waitForClaim(ns, "user-data")
	l.wait(ns, "condition=Ready", "pod/user")
	l.inPod(ns, "echo scratch > /data/file")
	data.expectFile("file", "scratch\n")
	l.kubectl("-n", ns, "delete", "pod", "user", "--timeout="+limit.String())
	l.wait(ns, "delete", "pv/"+data.volume)
	data.waitForRemoved()
}

func subPathIsInside(l *lab) {
	ns := l.namespace("subpath")
	l.apply(ns, claim("data", class)+pod("persistentVolumeClaim: {claimName: data}", ", subPath: in/side"))
	data := l.waitForClaim(ns, "data")
	l.wait(ns, "condition=Ready", "pod/user")
	l.inPod(ns, "echo inside > /data/file")
	data.expectFile("in/side/file", "inside\n")
}

// classText returns the manifest of a class, with parameters as key: value.
func classText(name string, parameters ...string) string {
	return "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: " + name + "}\n" +
		"provisioner: gnuthought.com/efs-stunnel\nallowVolumeExpansion: true\nparameters: {" + strings.Join(parameters, ", ") + "}\n---\n"
}

// classes applies manifests of classes, and deletes them at the end of the scenario.
func (l *lab) classes(text string, names ...string) {
	l.Helper()
	l.Cleanup(func() { l.kubectl(append([]string{"delete", "storageclass", "--ignore-not-found"}, names...)...) })
	l.apply("default", text)
}

func classesChooseFileSystems(l *lab) {
	ns := l.namespace("classes")
	l.classes(classText("e2e-shared", "default_file_system_id: "+shared)+classText("e2e-archive", "file_system_tags: Name=archive"),
		"e2e-shared", "e2e-archive")
	l.apply(ns, claim("on-shared", "e2e-shared", "volume_name: same")+claim("on-archive", "e2e-archive", "volume_name: same"))
	for name, want := range map[string]string{"on-shared": shared, "on-archive": archive} {
		data := l.waitForClaim(ns, name)
		if data.fileSystem != want {
			l.Errorf("claim %s is on %s, want %s", name, data.fileSystem, want)
		}
		if info, err := os.Stat(data.file("")); err != nil || !info.IsDir() {
			l.Errorf("claim %s has no directory: %v", name, err)
		}
	}
}

func refusedClaimHasAnEvent(l *lab) {
	ns := l.namespace("refused")
	l.Cleanup(func() { l.kubectl("delete", "storageclass", "e2e-refused", "--ignore-not-found") })
	l.apply(ns, claim("data", "e2e-refused"))
	// Parameters cannot be edited, so the class is deleted and created again.
	for _, attempt := range []struct{ perms, count string }{{"rwx", "1 "}, {"'8888'", "1 "}, {"rwx", "2 "}} {
		l.apply(ns, classText("e2e-refused", "directory_perms: "+attempt.perms))
		l.wait(ns, `jsonpath={.metadata.annotations.efs-stunnel\.gnuthought\.com/rejected}=true`, "pvc/data")
		l.eventually("the event that says why", func() string {
			const template = `jsonpath={range .items[*]}{.count} {.message}{"\n"}{end}`
			all := l.kubectl("-n", ns, "get", "events", "--field-selector", "reason=ProvisioningFailed", "-o", template)
			for event := range strings.Lines(all) {
				if strings.HasPrefix(event, attempt.count) && strings.Contains(event, strings.Trim(attempt.perms, "'")) {
					return ""
				}
			}
			return "the events say " + all
		})
		l.kubectl("delete", "storageclass", "e2e-refused")
	}
	l.apply(ns, classText("e2e-refused", "directory_perms: '0750'"))
	if info, err := os.Stat(l.waitForClaim(ns, "data").file("")); err != nil || info.Mode().Perm() != 0o750 {
		l.Errorf("the directory is %v, %v", info, err)
	}
}
