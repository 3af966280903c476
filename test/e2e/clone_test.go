//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
)

// smallFiles is the number of small files that claimIsCloned copies, in so many directories.
const (
	smallFiles       = 200
	smallDirectories = 4
)

// claimIsCloned: with the modes, owners, times, links and holes of its source. The source is written to by a
// pod, and by root on the server.
func claimIsCloned(l *lab) {
	ns := l.namespace("clone")
	l.apply(ns, claim("source", class, "file_system_id: "+shared)+pod("persistentVolumeClaim: {claimName: source}", ""))
	source := l.waitForClaim(ns, "source")
	l.wait(ns, "condition=Ready", "pod/user")
	// It may be repeated.
	l.inPod(ns, `cd /data && umask 027 && mkdir -p 'new
line/deep/er' && echo text > 'new
line/deep/er/file' && ln -f 'new
line/deep/er/file' linked && ln -sfn /etc/passwd outside && ( [ -p pipe ] || mkfifo pipe ) && chmod 640 linked &&
truncate -s 64M holes && touch -d '2001-02-03 04:05:06' linked`)
	l.inPod(ns, fmt.Sprintf(`cd /data && for d in $(seq %d); do mkdir -p small-$d && for f in $(seq %d); do echo $f > small-$d/$f; done; done`,
		smallDirectories, smallFiles/smallDirectories))

	began := time.Now()
	l.apply(ns, cloneClaim("copy", "source"))
	clone := l.waitForClaim(ns, "copy")
	l.Logf("%d small files were copied in %s, with the start of the Job", smallFiles, time.Since(began).Round(time.Millisecond))
	if warnings := l.kubectl("-n", ns, "get", "events", "--field-selector=involvedObject.name=copy,type=Warning", "-o", "jsonpath={.items[*].message}"); warnings != "" {
		l.Errorf("one Job does not suffice: %s", warnings)
	}
	if clone.path == source.path || clone.fileSystem != source.fileSystem {
		l.Fatalf("the copy has %s on %s, the source %s on %s", clone.path, clone.fileSystem, source.path, source.fileSystem)
	}
	if diff := cmp.Diff(l.listing(source), l.listing(clone)); diff != "" {
		l.Errorf("copy mismatch (-source +copy):\n%s", diff)
	}
	if blocks := clone.stat("holes").Blocks; blocks*512 > 1<<20 {
		l.Errorf("the holes of a sparse file take %d blocks", blocks)
	}
	if _, err := os.Stat(source.stateFile("clones", clone.volume)); err == nil {
		l.Error("the place where the copy was made is left")
	}

	l.kubectl("-n", ns, "delete", "pvc", "copy")
	l.wait(ns, "delete", "pv/"+clone.volume)
	clone.waitForRemoved()
	source.expectFile("linked", "text\n")
}

func cloneClaim(name, source string) string {
	return strings.Replace(claim(name, class), "spec:\n", fmt.Sprintf("spec:\n  dataSource: {kind: PersistentVolumeClaim, name: %q}\n", source), 1)
}

// listing is everything in a directory with what a copy must have, as find on the server sees it.
//
// The lab's file server does not set the times of symbolic links.
func (l *lab) listing(d directory) string {
	l.Helper()
	command := exec.CommandContext(l.Context(), "sh", "-c", `cd "$1" && find . \( -type d -printf '%P %y %m %U:%G %T+\0' \) -o \( -type l -printf '%P %y %m %U:%G %n %s %l\0' \) -o -printf '%P %y %m %U:%G %n %s %T+\0' | sort -z | tr '\0' '\n' && find . -type f -print0 | sort -z | xargs -0 cat | cksum`, "sh", d.file(""))
	out, err := command.CombinedOutput()
	if err != nil {
		l.Fatalf("listing %s: %v\n%s", d.path, err, out)
	}
	return string(out)
}
