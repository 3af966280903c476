//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// lostCluster is the uid of a cluster that never was.
const lostCluster = "01234567-89ab-cdef-0123-456789abcdef"

// lostVolumesAreRebuilt by the plugin of kubectl: what this cluster had before its objects were deleted, and
// what another one left.
func lostVolumesAreRebuilt(l *lab) {
	ns := l.namespace("rebuilt")
	l.apply(ns, claim("own", class, "volume_name: own", "reclaim_policy: Retain", "file_system_id: "+shared)+
		claim("foreign", class, "volume_name: foreign", "reclaim_policy: Retain", "file_system_id: "+shared))
	own, foreign := l.waitForClaim(ns, "own"), l.waitForClaim(ns, "foreign")
	for name, d := range map[string]directory{"own": own, "foreign": foreign} {
		d.write("worth keeping")
		l.kubectl("-n", ns, "delete", "pvc", name)
		l.wait(ns, "jsonpath={.status.phase}=Released", "pv/"+d.volume)
		l.kubectl("delete", "pv", d.volume, "--timeout="+limit.String())
	}
	foreign.giveAway(time.Now())

	rebuild := func(wantCode int, args ...string) (out string) {
		out, code := l.plugin(slices.Concat([]string{"rebuild", "--file-system=" + shared, "-n", ns}, args)...)
		if code != wantCode {
			l.Fatalf("rebuild %v ended with code %d, want %d:\n%s", args, code, wantCode, out)
		}
		return out
	}
	l.eventually("the file server to notice the new owner, so that the objects of the one volume are printed", func() string {
		if out := rebuild(0); !strings.Contains(out, "name: "+own.volume) || strings.Contains(out, foreign.volume) {
			return out
		}
		return ""
	})
	if out := l.kubectl("get", "pv", own.volume, "--ignore-not-found"); out != "" {
		l.Errorf("a dry run made %s", out)
	}
	rebuild(0, "--apply")
	rebuild(2, "--apply", "--cluster="+lostCluster) // it seems to live
	foreign.giveAway(time.Now().Add(-25 * time.Hour))
	l.eventually("the file server to notice the time of the entry", func() string {
		if out, code := l.plugin("rebuild", "--file-system="+shared, "-n", ns, "--apply", "--cluster="+lostCluster); code != 0 {
			return fmt.Sprintf("exit code %d: %s", code, out)
		}
		return ""
	})
	for name, d := range map[string]directory{"own": own, "foreign": foreign} {
		if now := l.waitForClaim(ns, name); now.path != d.path || now.volume != d.volume {
			l.Errorf("claim %s has %s of volume %s, want %s of %s", name, now.path, now.volume, d.path, d.volume)
		}
	}
	l.expectMounted(ns, "own", "foreign")
	if out := rebuild(0, "--apply", "--cluster="+lostCluster); !strings.Contains(out, "exists") || strings.Contains(out, "done") {
		l.Errorf("a second run should change nothing:\n%s", out)
	}
	l.deleteVolumes(ns, own.volume, foreign.volume)
}

// ownersAreReleased of a cluster that is gone, and not while it seems to live: the data stays, without an owner.
func ownersAreReleased(l *lab) {
	ns := l.namespace("abandoned")
	l.apply(ns, claim("data", class, "volume_name: data", "reclaim_policy: Retain", "file_system_id: "+shared))
	d := l.waitForClaim(ns, "data")
	d.write("worth keeping")
	l.kubectl("-n", ns, "delete", "pvc", "data")
	l.wait(ns, "jsonpath={.status.phase}=Released", "pv/"+d.volume)
	l.kubectl("delete", "pv", d.volume, "--timeout="+limit.String())
	d.giveAway(time.Now())

	release := func() (out string, code int) {
		return l.plugin("owners", "release", "--file-system="+shared, "--cluster="+lostCluster, "--yes")
	}
	expectState := func(state string) {
		l.Helper()
		out, code := l.plugin("owners", "list", "--file-system="+shared, "-n", ns)
		if code != 0 || !regexp.MustCompile(regexp.QuoteMeta(d.path)+` +`+state).MatchString(out) {
			l.Errorf("the owner should be %s, code %d:\n%s", state, code, out)
		}
	}
	l.eventually("the file server to notice the new owner, so that it is not released while it seems to live", func() string {
		if out, code := release(); code != 2 {
			return fmt.Sprintf("exit code %d: %s", code, out)
		}
		return ""
	})
	expectState("elsewhere")
	d.giveAway(time.Now().Add(-25 * time.Hour))
	l.eventually("the file server to notice the time of the entry", func() string {
		if out, code := release(); code != 0 {
			return fmt.Sprintf("exit code %d: %s", code, out)
		}
		return ""
	})
	expectState("retained")
	d.expectFile("file", "worth keeping")
}

// giveAway makes another cluster the owner in the ledger, since some time. Each node writes it through its own
// tunnel: behind the file servers of the mount targets, each would notice at a time of its own.
func (d directory) giveAway(since time.Time) {
	d.lab.Helper()
	own := strings.TrimSpace(d.lab.kubectl("get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}"))
	for _, node := range []string{"node-1", "node-2"} {
		d.lab.onNode(node, fmt.Sprintf(`set -e
at=$(mktemp -d)
mount -t nfs4 -o nfsvers=4.1,port=%d 127.0.0.1:/ $at
trap 'umount $at; rmdir $at' EXIT
entry=$at/.efs-stunnel/owners%s/@%s
text=$(sed s/%s/%s/ $entry)
echo "$text" > $entry
touch -d @%d $entry`, d.lab.portOf(d.fileSystem), d.path, d.volume, own, lostCluster, since.Unix()))
	}
}

// directoriesAreImported that were made by hand, as another provisioner names them.
func directoriesAreImported(l *lab) {
	ns := l.namespace("imported")
	const uid = "11111111-2222-4333-8444-555555555555"
	base := "/e2e-imported"
	paths := map[string]string{"data-0": base + "/" + ns + "-data-0-pvc-" + uid, "by-name": base + "/by-name"}
	for _, path := range paths {
		d := directory{lab: l, fileSystem: shared, path: path}
		if err := os.MkdirAll(d.file(""), 0o755); err != nil {
			l.Fatal(err)
		}
		d.write("worth keeping")
	}
	imports := func(wantCode int, args ...string) (out string) {
		out, code := l.plugin(slices.Concat([]string{"import", "--file-system=" + shared}, args)...)
		if code != wantCode {
			l.Fatalf("import %v ended with code %d, want %d:\n%s", args, code, wantCode, out)
		}
		return out
	}
	from := []string{"--from=nfs-subdir-external-provisioner", "--base=" + base}
	for _, args := range [][]string{from, append(from, "--trust-path-names")} { // the name fits several claims
		if out := imports(2, append(args, "--apply")...); !strings.Contains(out, "whose?") {
			l.Errorf("import %v should ask whose it is:\n%s", args, out)
		}
	}
	named := ns + "/data-0=" + paths["data-0"]
	if out := imports(0, named); !strings.Contains(out, "path: "+paths["data-0"]) {
		l.Errorf("it should print the volume:\n%s", out)
	}
	if out := l.kubectl("-n", ns, "get", "pvc"); out != "" {
		l.Errorf("a dry run made %s", out)
	}
	imports(0, named, "--apply")
	pair := ns + "/by-name=" + paths["by-name"]
	imports(0, pair, "--reclaim-policy=Delete", "--apply")
	imports(2, ns+"/again="+paths["by-name"], "--apply") // it has an owner
	var all []directory
	for name, path := range paths {
		now := l.waitForClaim(ns, name)
		if now.path != path {
			l.Errorf("claim %s has %s, want %s", name, now.path, path)
		}
		all = append(all, now)
	}
	l.expectMounted(ns, "data-0", "by-name")
	if out := imports(0, named, "--apply"); !strings.Contains(out, "exists") || strings.Contains(out, "done") {
		l.Errorf("a second run should change nothing:\n%s", out)
	}

	l.kubectl("-n", ns, "delete", "pvc", "by-name", "--timeout="+limit.String())
	for _, d := range all {
		if d.path == paths["by-name"] {
			l.wait(ns, "delete", "pv/"+d.volume)
			d.waitForRemoved()
			continue
		}
		l.deleteVolumes(ns, d.volume)
		d.expectFile("file", "worth keeping")
	}
}

// expectMounted has a pod read what was worth keeping from each of the claims.
func (l *lab) expectMounted(ns string, claims ...string) {
	l.Helper()
	for _, name := range claims {
		l.apply(ns, pod("persistentVolumeClaim: {claimName: "+name+"}", ""))
		l.wait(ns, "condition=Ready", "pod/user")
		l.inPod(ns, `[ "$(cat /data/file)" = "worth keeping" ]`)
		l.kubectl("-n", ns, "delete", "pod", "user", "--timeout="+limit.String())
	}
}

// deleteVolumes with the policy Retain, and their claims.
func (l *lab) deleteVolumes(ns string, volumes ...string) {
	l.Helper()
	l.kubectl("-n", ns, "delete", "pvc", "--all", "--timeout="+limit.String())
	for _, volume := range volumes {
		l.wait(ns, "jsonpath={.status.phase}=Released", "pv/"+volume)
		l.kubectl("delete", "pv", volume, "--timeout="+limit.String())
	}
}
