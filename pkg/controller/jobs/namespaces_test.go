package jobs

import (
	"testing"

	"gnuthought.com/efs-stunnel/pkg/directories"
)

// TestOperationsAreSentWithTheUIDOfTheirNamespace as it is now, unless they only finish what was begun.
func TestOperationsAreSentWithTheUIDOfTheirNamespace(t *testing.T) {
	const uid = "namespace-of-0"
	c := newSharedPath(t, 1, 1).clusters[0]
	claim := string(c.addClaim("Delete", "").UID)
	for name, tt := range map[string]struct {
		operation directories.Operation
		want      string
		left      bool
	}{
		"setup":                             {operation: directories.Operation{Kind: directories.Setup, Owner: directories.Owner{Namespace: livesNamespace, ClaimUID: claim}}, want: uid},
		"setup, tried in another namespace": {operation: directories.Operation{Kind: directories.Setup, Owner: directories.Owner{Namespace: livesNamespace, ClaimUID: claim, NamespaceUID: "earlier"}}, want: uid},
		"restore":                           {operation: directories.Operation{Kind: directories.Restore, Owner: directories.Owner{Namespace: livesNamespace, ClaimUID: claim}}, want: uid},
		"namespace gone":                    {operation: directories.Operation{Kind: directories.Setup, Owner: directories.Owner{Namespace: "gone", ClaimUID: claim}}, left: true},
		"claim gone, setup was begun":       {operation: directories.Operation{Kind: directories.Setup, Owner: directories.Owner{Namespace: livesNamespace, ClaimUID: "gone", NamespaceUID: "earlier"}}, want: "earlier"},
		"both gone, setup was begun":        {operation: directories.Operation{Kind: directories.Setup, Owner: directories.Owner{Namespace: "gone", ClaimUID: "gone", NamespaceUID: "earlier"}}, want: "earlier"},
		"cleanup":                           {operation: directories.Operation{Kind: directories.Cleanup, Owner: directories.Owner{Namespace: livesNamespace, ClaimUID: claim}}},
	} {
		t.Run(name, func(t *testing.T) {
			sent, err := c.withNamespaceUIDs(t.Context(), []directories.Operation{tt.operation})
			if err != nil || (len(sent) == 0) != tt.left {
				t.Fatalf("sent %+v, error %v", sent, err)
			}
			if !tt.left && sent[0].NamespaceUID != tt.want {
				t.Errorf("sent with the uid %q, want %q", sent[0].NamespaceUID, tt.want)
			}
		})
	}
}
