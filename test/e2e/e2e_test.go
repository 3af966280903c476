//go:build e2e

// Package e2e tests the product on real nodes in the lab, installed with the manifests and images that
// users install.
//
// Without -long it has one scenario for each promise that needs real nodes. With -long (make
// e2e-long) it adds features that other tests prove in parts, and repeats faults more often.
package e2e

import (
	"flag"
	"slices"
	"testing"
)

// long is set by make e2e-long.
var long = flag.Bool("long", false, "run the scenarios of make e2e-long, too, and repeat faults more often")

// scenario is a use of the product, or a fault. Each leaves the lab as it was.
type scenario struct {
	name string
	run  func(*lab)
}

// claims are scenarios that change their own claims only.
var claims = []scenario{
	{"the examples run as they are", examplesRun},
	{"deletion removes the directory and nothing beside it", deletionIsExact},
	{"retained data outlives every claim that comes to it", retainedDataStays},
	{"files of an access point are its user's", accessPointsHaveOwners},
	{"a class of the AWS EFS CSI driver serves its claims as it is", driverClassServesItsClaims},
}

// longScenarios are the scenarios of make e2e-long only.
var longScenarios = []scenario{
	{"more claims", parallel(append(inLab(claimsAnywhere), []scenario{
		{"a class's mount options reach the mount", mountOptionsAreMounted},
		{"a claim is a copy of another one", claimIsCloned},
		{"a volume of the original system is adopted", originalVolumeIsAdopted},
		{"a class says when directories are made, where, and whose they are", classesShapeDirectories},
		{"an ephemeral volume lives as long as its pod", ephemeralVolumeIsDeletedWithItsPod},
		{"a subPath is made inside the directory", subPathIsInside},
		{"two classes lead to two file systems", classesChooseFileSystems},
		{"a refused claim has an event that says why, and is accepted once corrected", refusedClaimHasAnEvent},
		{"owners of a lost cluster are released", ownersAreReleased},
		{"claims one after another share one mount Job", claimsShareOneJob},
		{"volumes of a lost cluster are rebuilt from the ledger", lostVolumesAreRebuilt},
		{"directories of another provisioner are imported", directoriesAreImported},
		{"the replicas of efs-provisioner's StatefulSet have separate directories", efsProvisionerReplicasAreSeparate},
		{"a claim is read from another namespace", claimIsReadFromAnotherNamespace},
		{"a forged volume removes nothing", forgedVolumeRemovesNothing},
		{"the supervisor has neither token nor credentials", supervisorHasNoIdentity},
	}...))},
	{"a burst of claims survives its leader", burstSurvivesItsLeader},
	{"usage is counted, and Prometheus reads what alerts and dashboard ask for", prometheusReadsMetrics},
	{"pods of a One Zone file system run in its zone", oneZonePodsRunInItsZone},
	{"the plugin of kubectl names what claims wait for", pluginExplainsClaims},
	{"the plugin of kubectl names what of the installation is broken", pluginNamesCauses},
	{"a manager outside the cluster", withManagerOutside([]scenario{
		{"it serves the cluster", managerServesFromOutside},
		{"a claim that fails too often is given up until its class changes", failingClaimIsGivenUp},
		{"a copy of a file system is served under its alias", aliasedCopyIsServed},
	})},
	{"a browser shows the installation", browserShowsInstallation},
	{"builds on the lab's machine cost no Lease", buildCostsNoLease},
	{"additions", parallel([]scenario{
		{"a node is added", nodeIsAddedLater},
		{"a file system that requires signatures has them", signingTunnelIsAdmitted},
	})},
	{"a file system is added", fileSystemIsAddedLater},
	{"a file system with IPv6 addresses only is served", fileSystemIsServedOverIPv6},
	{"nodes without a route of IPv4 use IPv6", nodesWithoutIPv4UseIPv6},
	{"programs of the version before work with those of this one", versionsMix},
	{"images of the Dockerfile serve", imagesOfDockerfileServe},
	{"a deleted root volume is created again", deletedRootVolumeIsRecreated},
	{"a deleted table is rebuilt", deletedTableIsRebuilt},
	{"upkeep", serial(inLab(upkeepAnywhere))},
	{"a pinned server that is not EFS is served", foreignServerIsServed},
	{"volumes are what POSIX says, but for the differences of NFS", volumesArePosix},
	{"SQLite, git and PostgreSQL keep their data", applicationsKeepTheirData},
	{"a mount has several connections", lanesCarryMounts},
	{"a full disk stops no tunnel", fullDiskStopsNothing},
	{"a memory full of data to be written drains", fullMemoryDrains},
	{"unused targets cost little", manyTargetsCostLittle},
	{"a pod that takes a tunnel's port is refused, or reported", hijackedPortIsReported},
}

// writesSurvive has the nodes for itself in the long run, which measures its pauses. In the short run, the clients of a history
// work beside it.
var writesSurvive = scenario{"writes survive faults between client and server", writesSurviveFaults}

// lastScenarios check what all others have done, and uninstall the product.
var lastScenarios = []scenario{
	{"an agent does no more than admission allows", agentIsLimitedByAdmission},
	{"every right that was granted was used", rightsAreUsed},
	{"uninstalling leaves data and nothing stuck", uninstallIsClean},
}

func TestProduct(t *testing.T) {
	l := setUp(t)
	if *long {
		t.Run("the original system is replaced", func(t *testing.T) { originalIsReplaced(l.withT(t)) })
	}
	l.run("hack/demo/install") // changes nothing that is already installed
	l.installSharedVolumes()
	scenarios := []scenario{
		{"claims", parallel(claims)},
		{"what clients see of files is what NFS promises, also during faults", filesAreRight},
	}
	if *long {
		scenarios = slices.Concat(scenarios, []scenario{writesSurvive}, longScenarios)
	}
	scenarios = append(scenarios, lastScenarios...)
	if *long {
		scenarios = append(scenarios, scenario{"a cluster without EFS has a server of its own", serverOfOurOwnServes})
	}
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) { s.run(l.withT(t)) })
	}
}

// inLab are scenarios of any cluster. The lab has all that they need.
func inLab(scenarios []anywhere) (all []scenario) {
	for _, s := range scenarios {
		all = append(all, scenario{s.name, func(l *lab) {
			l.Cleanup(func() {
				if l.Skipped() {
					l.Error("the lab lacks what the scenario needs")
				}
			})
			s.run(l.cluster)
		}})
	}
	return all
}

func parallel(scenarios []scenario) func(*lab) {
	return func(l *lab) {
		for _, s := range scenarios {
			l.Run(s.name, func(t *testing.T) {
				t.Parallel()
				s.run(l.withT(t))
			})
		}
	}
}

func serial(scenarios []scenario) func(*lab) {
	return func(l *lab) {
		for _, s := range scenarios {
			l.Run(s.name, func(t *testing.T) { s.run(l.withT(t)) })
		}
	}
}

// times returns how often something happens, or whatever else differs, in a short and in a long run.
func times[T any](short, inLong T) T {
	if *long {
		return inLong
	}
	return short
}
