//go:build e2e

// Package e2e proves the product where it lives: on real nodes in the lab, installed with the
// manifests and images that users install.
//
// Without -long it has one scenario for each promise that needs real nodes. With -long (make
// e2e-long) it adds features that other tests prove in parts, and repeats what may fail rarely.
package e2e

import (
	"flag"
	"testing"
)

// long is what make e2e-long sets.
var long = flag.Bool("long", false, "run the scenarios of make e2e-long, too, and repeat faults more often")

// scenario is a story of a user, or of bad luck. Each leaves the lab as it was.
type scenario struct {
	name string
	run  func(*lab)
}

// claims are scenarios that change nothing but their own claims, and the API's answers about them.
var claims = []scenario{
	{"the examples run as they are", examplesRun},
	{"manifests of every platform are accepted", overlaysAreAccepted},
	{"deletion removes the directory and nothing beside it", deletionIsExact},
	{"retained data outlives every claim that comes to it", retainedDataStays},
	{"namespaces are apart", namespacesAreApart},
	{"a claim that grows has its size at once", claimGrows},
	{"a volume of the original system is adopted", originalVolumeIsAdopted},
	{"SharedVolumes give access points to namespaces", sharedVolumesServe},
	{"a class's mount options reach the mount", mountOptionsAreMounted},
	{"a class says when directories are made, where, and whose they are", classesShapeDirectories},
	{"deleted data comes back into a new claim", deletedDataComesBack},
	{"claims share a directory, and a forged volume removes nothing", claimsShareADirectory},
	{"the supervisor has neither token nor credentials", supervisorHasNoIdentity},
}

// faults are scenarios about processes and servers that fail. A new leader is awaited for as long
// as the old one's Lease lasts, and meanwhile tunnels need no manager.
var faults = []scenario{
	{"a burst of claims survives its leader", burstSurvivesItsLeader},
	{"faults between client and server are not noticed", faultsAreNotNoticed},
}

// longScenarios are those of make e2e-long only.
var longScenarios = []scenario{
	{"more claims", sideBySide([]scenario{
		{"an ephemeral volume lives as long as its pod", ephemeralVolumeComesAndGoes},
		{"a subPath is made inside the directory", subPathIsInside},
		{"two classes lead to two file systems", classesChooseFileSystems},
		{"a refused claim is told why, and accepted once mended", refusedClaimIsTold},
		{"the StatefulSet of efs-provisioner keeps its replicas apart", efsProvisionerReplicasAreApart},
	})},
	{"newcomers", sideBySide([]scenario{
		{"a node comes later", nodeComesLater},
		{"a file system that asks for signatures gets them", identityOpensTheDoor},
	})},
	{"a file system comes later", fileSystemComesLater},
	{"a One Zone file system has its pods in its zone", oneZoneHasItsPods},
	{"a root volume that is deleted comes back", rootVolumeComesBack},
	{"a table that is deleted comes back", tableComesBack},
	{"a manager outside the cluster", whileManagerIsOutside([]scenario{
		{"it serves the cluster", managerServesFromOutside},
		{"a claim that fails too often is given up until its class changes", failingClaimIsGivenUp},
		{"a copy of a file system is served under its alias", copyIsServed},
	})},
	{"a drained node gives its writer away", drainMovesTheWriter},
	{"a pinned server that is not EFS is served", foreignServerIsServed},
	{"a full disk stops no tunnel", fullDiskStopsNothing},
	{"targets that nobody uses cost little", manyTargetsCostLittle},
	{"a pod that takes a tunnel's port is refused, or noticed", hijackedPortIsNoticed},
}

// ending needs the traces of all others, and leaves nothing for them.
var ending = []scenario{
	{"an agent does no more than admission allows", agentIsHeldBack},
	{"every right that was granted was used", rightsAreUsed},
	{"uninstalling leaves data and nothing stuck", uninstallIsClean},
}

func TestProduct(t *testing.T) {
	l := bringUp(t)
	if *long {
		t.Run("the original system is replaced", func(t *testing.T) { originalIsReplaced(l.in(t)) })
	}
	l.run("hack/demo/install") // changes nothing that is installed already
	scenarios := []scenario{{"claims", sideBySide(claims)}, {"faults", sideBySide(faults)}}
	if *long {
		scenarios[1].run = inTurn(faults) // how long writing pauses is to be the faults' doing
		scenarios = append(scenarios, longScenarios...)
	}
	for _, s := range append(scenarios, ending...) {
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

func inTurn(scenarios []scenario) func(*lab) {
	return func(l *lab) {
		for _, s := range scenarios {
			l.Run(s.name, func(t *testing.T) { s.run(l.in(t)) })
		}
	}
}

// times is how often something is repeated in a short run, and in a long one.
func times(short, inLong int) int {
	if *long {
		return inLong
	}
	return short
}
