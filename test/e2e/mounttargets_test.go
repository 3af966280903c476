//go:build e2e

package e2e

import (
	"encoding/json"
	"regexp"
	"time"
)

// failure is a fault of a mount target, and the pause that it may cause.
type failure struct {
	name, mode string
	allowed    allowance
	// failsOver: the agent restarts the tunnel. It waits twice as long before each next time, so the
	// failures with the shortest allowance come first.
	failsOver bool
	onlyLong  bool
}

var mountTargetFailures = []failure{
	{name: "is silent", mode: "silent", allowed: silence, failsOver: true},
	{name: "drops packets", mode: "drop", allowed: silence, failsOver: true, onlyLong: true},
	{name: "resets connections", mode: "reset", allowed: momentary, failsOver: true, onlyLong: true},
	{name: "refuses", mode: "refuse", allowed: momentary},
	{name: "refuses, the other one", mode: "refuse", allowed: momentary, onlyLong: true},
}

// mountTargetsFail in turn: after one has failed, the other one serves until that fails.
func (w *writer) mountTargetsFail() {
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
			w.waitForWriting(backoff)
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
		w.expectPause("mount target "+f.name, f.allowed, func() { set(serving, "--mode="+f.mode) })
		set(serving, "--mode=ok")
		serving, other = other, serving
	}
	if *long {
		wait()
		w.certificateIsWrong(set, serving, other)
	}
}

// certificateIsWrong at the mount target to which the tunnel connects first: the node refuses new connections to
// it, reports that, and connects to the other one.
func (w *writer) certificateIsWrong(set func(target mountTarget, flag string), targets ...mountTarget) {
	l := w.lab
	l.Helper()
	first, address := targets[0], l.firstMountTarget(shared, w.node)
	for _, target := range targets {
		if target.Address == address {
			first = target
		}
	}
	set(first, "--certificate=expired")
	w.logPause("certificate of the mount target has expired, and stunnel is killed", func() {
		l.onNode(w.node, "pkill -KILL -x stunnel")
	})
	l.waitForEvent("default", w.node, "TunnelUnhealthy", "CertificateExpired")
	set(first, "--certificate=ok")
}

// firstMountTarget returns the address that the agent's newest specification of a tunnel has first.
func (l *lab) firstMountTarget(fileSystem, node string) (address string) {
	l.Helper()
	written := regexp.MustCompile(`specification written" fileSystem=` + fileSystem + ` port=\d+ mountTarget=(\S+)`)
	found := written.FindAllStringSubmatch(l.kubectl("-n", system, "logs", l.agentOf(node), "-c", "agent"), -1)
	if len(found) == 0 {
		l.Fatalf("the agent of %s has written no specification of %s", node, fileSystem)
	}
	return found[len(found)-1][1]
}

// mountTarget is a mount target, as the stand-in lists it.
type mountTarget struct{ ID, FileSystemID, Zone, Address string }

// mountTargets returns the mount target in the node's zone, and another one.
func (l *lab) mountTargets(fileSystem, node string) (near, far mountTarget) {
	l.Helper()
	var listing struct{ MountTargets map[string]mountTarget }
	if err := json.Unmarshal([]byte(l.lab("efs", "list", "-o", "json")), &listing); err != nil {
		l.Fatal(err)
	}
	zone := l.kubectl("get", "node", node, "-o", `jsonpath={.metadata.labels.topology\.kubernetes\.io/zone}`)
	for _, target := range listing.MountTargets {
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
