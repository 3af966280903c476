//go:build e2e

// Package e2e proves the product where it lives: on real nodes in the lab, installed with the
// manifests and images that users install.
package e2e

import "testing"

// scenario is a story of a user, or of bad luck. Each leaves the lab as it was.
type scenario struct {
	name string
	run  func(*lab)
}

// claims are scenarios that change nothing but their own claims.
var claims = []scenario{
	{"the examples run as they are", examplesRun},
	{"deletion removes the directory and nothing beside it", deletionIsExact},
	{"retained data outlives every claim that comes to it", retainedDataStays},
	{"namespaces are apart", namespacesAreApart},
	{"an ephemeral volume lives as long as its pod", ephemeralVolumeComesAndGoes},
	{"a subPath is made inside the directory", subPathIsInside},
	{"two classes lead to two file systems", classesChooseFileSystems},
	{"a claim that grows has its size at once", claimGrows},
	{"a refused claim is told why, and accepted once mended", refusedClaimIsTold},
}

// newcomers are a node and file systems that no other scenario uses.
var newcomers = []scenario{
	{"a node comes later", nodeComesLater},
	{"SharedVolumes give access points to namespaces, and signatures to who wants them", func(l *lab) {
		sharedVolumesServe(l)
		identityOpensTheDoor(l)
	}},
}

func TestProduct(t *testing.T) {
	l := bringUp(t)
	t.Run("the original system is replaced", func(t *testing.T) { originalIsReplaced(l.in(t)) })
	l.run("hack/demo/install") // nothing new, unless somebody runs one scenario alone
	for _, s := range []scenario{
		{"overlays are accepted", overlaysAreAccepted},
		{"claims", sideBySide(claims)},
		{"a root volume that somebody deletes comes back", rootVolumeComesBack},
		{"a table that somebody deletes comes back", tableComesBack},
		{"a burst of claims survives its leader", burstSurvivesItsLeader},
		{"a file system comes later", fileSystemComesLater},
		{"a table that nobody can read is served on", brokenTableIsServedOn},
		{"newcomers", sideBySide(newcomers)},
		{"a manager outside the cluster serves it", managerServesFromOutside},
		{"an upgrade of everything is not noticed", upgradeIsNotNoticed},
		{"faults between client and server are not noticed", faultsAreNotNoticed},
		{"a drained node gives its writer away", drainMovesTheWriter},
		{"an agent does no more than admission allows", agentIsHeldBack},
		{"every right that was granted was used", rightsAreUsed},
		{"uninstalling leaves data and nothing stuck", uninstallIsClean}, // the last
	} {
		t.Run(s.name, func(t *testing.T) { s.run(l.in(t)) })
	}
}

func sideBySide(scenarios []scenario) func(*lab) {
	return func(l *lab) {
		for _, s := range scenarios {
			l.Run(s.name, func(t *testing.T) {
				t.Parallel()
				s.run(l.in(t))
			})
		}
	}
}
