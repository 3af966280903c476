//go:build e2e

// Package e2e proves the product where it lives: on real nodes in the lab, installed with the
// manifests and images that users install.
package e2e

import "testing"

func TestProduct(t *testing.T) {
	l := bringUp(t)
	for _, s := range []struct {
		name string
		run  func(*lab)
	}{
		{"overlays are accepted", overlaysAreAccepted},
		{"pods on two nodes share a claim's directory", podsShareAClaim},
		{"a StatefulSet's replicas have a directory each", replicasAreApart},
		{"deletion removes the directory and nothing beside it", deletionIsExact},
		{"retained data comes back under its name", retainedDataComesBack},
		{"namespaces are apart", namespacesAreApart},
		{"an ephemeral volume lives as long as its pod", ephemeralVolumeComesAndGoes},
		{"a subPath is made inside the directory", subPathIsInside},
		{"two classes lead to two file systems", classesChooseFileSystems},
		{"a claim that grows has its size at once", claimGrows},
		{"a refused claim is told why, and accepted once mended", refusedClaimIsTold},
		{"a volume of the original system is adopted", originalVolumeIsAdopted},
		{"a root volume that somebody deletes comes back", rootVolumeComesBack},
		{"a burst of claims survives its leader", burstSurvivesItsLeader},
		{"a file system comes later", fileSystemComesLater},
		{"a node comes later", nodeComesLater},
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
