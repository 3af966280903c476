//go:build e2e

package e2e

import (
	"encoding/json"
	"time"
)

// failure is what a mount target does to its clients, and what that may cost them.
type failure struct {
	words, mode string
	allowed     allowance
	// failsOver: the agent restarts the tunnel. It waits before the next time, twice as long after
	// each, so those come first that must be left in time.
	failsOver bool
	onlyLong  bool
}

var mountTargetFailures = []failure{
	{words: "is silent", mode: "silent", allowed: silence, failsOver: true},
	{words: "is dark", mode: "drop", allowed: silence, failsOver: true, onlyLong: true},
	{words: "resets connections", mode: "reset", allowed: momentary, failsOver: true, onlyLong: true},
	{words: "refuses", mode: "refuse", allowed: momentary},
	{words: "refuses, the other one", mode: "refuse", allowed: momentary, onlyLong: true},
}

// mountTargetsFail in turn: where one has failed, the other one serves until that fails.
func (w *writing) mountTargetsFail() {
	l := w.lab
	l.Helper()
	serving, other := l.mountTargets(shared, w.node)
	set := func(target mountTarget, flag string) { l.lab("efs", "update-mount-target", target.ID, flag) }
	l.Cleanup(func() {
		for _, target := range []mountTarget{serving, other} {
			set(target, "--mode=ok")
			set(target, "--certificate=ok")
		}
	})
	backoff := time.Duration(0)
	wait := func() {
		if backoff > 0 {
			w.goOn(backoff)
		}
		backoff = max(15*time.Second, 2*backoff)
	}
	for _, f := range mountTargetFailures {
		if f.onlyLong && !*long {
			continue
		}
		if f.failsOver {
			wait()
		}
		w.wantPause("mount target "+f.words, f.allowed, func() { set(serving, "--mode="+f.mode) })
		set(serving, "--mode=ok")
		serving, other = other, serving
	}
	if *long {
		wait()
		w.certificateIsWrong(serving, set)
	}
}

// certificateIsWrong at the mount target that serves: new connections to it are refused, which the
// node tells, and lead to the other one.
func (w *writing) certificateIsWrong(serving mountTarget, set func(target mountTarget, flag string)) {
	l := w.lab
	l.Helper()
	set(serving, "--certificate=expired")
	w.wantLines("certificate of the mount target has expired, and stunnel is killed", func() {
		l.onNode(w.node, "pkill -KILL -x stunnel")
	})
	l.awaitEvent("default", w.node, "TunnelUnhealthy", "CertificateExpired")
	set(serving, "--certificate=ok")
}

// mountTarget is one of a file system's, as the stand-in lists it.
type mountTarget struct{ ID, FileSystemID, Zone, Address string }

// mountTargets are those of a file system: the one in the node's zone, and another.
func (l *lab) mountTargets(fileSystem, node string) (near, far mountTarget) {
	l.Helper()
	var world struct{ MountTargets map[string]mountTarget }
	if err := json.Unmarshal([]byte(l.lab("efs", "list", "-o", "json")), &world); err != nil {
		l.Fatal(err)
	}
	zone := l.kubectl("get", "node", node, "-o", `jsonpath={.metadata.labels.topology\.kubernetes\.io/zone}`)
	for _, target := range world.MountTargets {
		switch {
		case target.FileSystemID != fileSystem:
		case target.Zone == zone:
			near = target
		default:
			far = target
		}
	}
	if near.ID == "" || far.ID == "" {
		l.Fatalf("%s has no mount targets in zone %s and in another", fileSystem, zone)
	}
	return near, far
}
