//go:build integration

package integration_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"gnuthought.com/efs-stunnel/pkg/mountjob/directories"
	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// abroad is an operation of another cluster for a path, of a namespace with the same name.
func (s *claimsWorld) abroad(kind operations.Kind, path string) operations.Operation {
	const uid = "0a0a0a0a-0000-4000-8000-000000000000"
	return operations.Operation{
		Kind: kind, Path: path, Rules: operations.Rules{ShareAcrossClusters: true},
		Owner: operations.Owner{
			Volume: volumes.VolumeName(uid), Cluster: "0b0b0b0b-0000-4000-8000-000000000000",
			Namespace: s.Team, Claim: "data", ClaimUID: uid,
		},
	}
}

// run does operations on the file system, as a mount Job of another cluster would.
func (s *claimsWorld) run(ops ...operations.Operation) {
	s.Helper()
	fileSystem, err := directories.Open(s.Context(), s.Folder(s.fileSystem), directories.Options{FileSystemID: s.fileSystem})
	if err != nil {
		s.Fatal(err)
	}
	defer fileSystem.Close()
	if report := fileSystem.Run(s.Context(), ops, nil); !report.Succeeded() {
		s.Fatalf("the other cluster's operations: %+v", report)
	}
}

// TestClustersShareOnlyIfTheClassSaysSo has the ledger keep one cluster's data from another's.
func TestClustersShareOnlyIfTheClassSaysSo(t *testing.T) {
	s := newClaimsWorld(t)
	open := s.NewClass("open", map[string]string{"share_across_clusters": "true"}).Name
	theirs := "/" + s.Team + "/theirs"
	s.run(s.abroad(operations.Setup, theirs))
	s.write(theirs, "data")

	refused := s.NewClaim("refused", s.class, called("theirs"))
	s.awaitTold(refused, wellknown.EventProvisioningFailed,
		theirs, "belongs to", s.Team+"/data of cluster 0b0b0b0b-0000-4000-8000-000000000000", "share_across_clusters")
	shared := s.bound("shared", open, called("theirs"))
	s.wantFile(shared.path, "data")
	s.deleteClaims(refused)
	s.deleteClaims(shared.claim)
	s.AwaitVolumeGone(shared.claim)
	s.awaitTold(shared.object, wellknown.EventVolumeDeleteSkipped, theirs, "belongs to", s.Team+"/data of cluster 0b0b0b0b-0000-4000-8000-000000000000")
	s.wantFile(theirs, "data")
	s.run(s.abroad(operations.Cleanup, theirs))
	s.wantNoTrace(theirs)
}

// TestAnotherClusterInheritsData leaves a directory that was made here to those who still use it.
func TestAnotherClusterInheritsData(t *testing.T) {
	s := newClaimsWorld(t)
	ours := s.bound("data", s.class, called("ours"))
	s.write(ours.path, "data")
	s.run(s.abroad(operations.Setup, ours.path))
	s.deleteClaims(ours.claim)
	s.AwaitVolumeGone(ours.claim)
	s.awaitTold(ours.object, wellknown.EventVolumeDeleteSkipped, ours.path, s.Team+"/data of cluster 0b0b0b0b")
	s.wantFile(ours.path, "data")
	s.run(s.abroad(operations.Cleanup, ours.path))
	s.wantNoTrace(ours.path)
}

// TestRememberedOwnerKeepsTheData has an owner of this cluster in the ledger that exists nowhere
// else. Its data may have been retained, so it keeps the directory, and blocks no cleanup.
func TestRememberedOwnerKeepsTheData(t *testing.T) {
	s := newClaimsWorld(t)
	v := s.bound("data", s.class, called("shared"))
	remembered := string(uuid.NewUUID())
	s.run(operations.Operation{Kind: operations.Setup, Path: v.path, Owner: operations.Owner{
		Volume: volumes.VolumeName(types.UID(remembered)), Cluster: s.ClusterUID, Namespace: s.Team, Claim: "forgotten", ClaimUID: remembered,
	}})
	s.write(v.path, "data")
	s.deleteClaims(v.claim)
	s.AwaitVolumeGone(v.claim)
	s.wantFile(v.path, "data")
}

// TestNamespaceThatIsMadeAgain has data in the ledger of a namespace that was deleted and made again.
// The new one does not get the old one's data, unless the class says so.
func TestNamespaceThatIsMadeAgain(t *testing.T) {
	s := newClaimsWorld(t)
	open := s.NewClass("open", map[string]string{"share_across_namespaces": "true"}).Name
	path, uid := "/"+s.Team+"/old", string(uuid.NewUUID())
	old := operations.Owner{
		Volume: volumes.VolumeName(types.UID(uid)), Cluster: s.ClusterUID, Namespace: s.Team, Claim: "old", ClaimUID: uid,
		NamespaceUID: string(uuid.NewUUID()),
	}
	s.run(operations.Operation{Kind: operations.Setup, Path: path, Owner: old})
	s.write(path, "data")
	refused := s.NewClaim("refused", s.class, called("old"))
	s.awaitTold(refused, wellknown.EventProvisioningFailed, path, "deleted and made again", `share_across_namespaces: "true"`)
	s.wantFile(s.bound("welcome", open, called("old")).path, "data")
}
