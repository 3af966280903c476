package jobs

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/kube/events"
)

// TestOperationsAreSentWithTheUIDOfTheirNamespace as it is now, unless they only finish what was begun.
func TestOperationsAreSentWithTheUIDOfTheirNamespace(t *testing.T) {
	const uid = "namespace-of-0"
	c := newSharedPath(t, 1, 1).clusters[0]
	claim := string(c.addClaim("Delete", "").UID)
	for name, tt := range map[string]struct {
		operation operations.Operation
		want      string
		left      bool
	}{
		"setup":                             {operation: operations.Operation{Kind: operations.Setup, Owner: operations.Owner{Namespace: historyNamespace, ClaimUID: claim}}, want: uid},
		"setup, tried in another namespace": {operation: operations.Operation{Kind: operations.Setup, Owner: operations.Owner{Namespace: historyNamespace, ClaimUID: claim, NamespaceUID: "earlier"}}, want: uid},
		"restore":                           {operation: operations.Operation{Kind: operations.Restore, Owner: operations.Owner{Namespace: historyNamespace, ClaimUID: claim}}, want: uid},
		"namespace gone":                    {operation: operations.Operation{Kind: operations.Setup, Owner: operations.Owner{Namespace: "gone", ClaimUID: claim}}, left: true},
		"claim gone, setup was begun":       {operation: operations.Operation{Kind: operations.Setup, Owner: operations.Owner{Namespace: historyNamespace, ClaimUID: "gone", NamespaceUID: "earlier"}}, want: "earlier"},
		"both gone, setup was begun":        {operation: operations.Operation{Kind: operations.Setup, Owner: operations.Owner{Namespace: "gone", ClaimUID: "gone", NamespaceUID: "earlier"}}, want: "earlier"},
		"gift, its first claim gone":        {operation: operations.Operation{Kind: operations.Setup, Adopt: true, Owner: operations.Owner{Namespace: historyNamespace, ClaimUID: "gone"}, GivenTo: claim}, want: uid},
		"cleanup":                           {operation: operations.Operation{Kind: operations.Cleanup, Owner: operations.Owner{Namespace: historyNamespace, ClaimUID: claim}}},
	} {
		t.Run(name, func(t *testing.T) {
			sent, err := c.withNamespaceUIDs(t.Context(), []operations.Operation{tt.operation})
			if err != nil || (len(sent) == 0) != tt.left {
				t.Fatalf("sent %+v, error %v", sent, err)
			}
			if !tt.left && sent[0].NamespaceUID != tt.want {
				t.Errorf("sent with the uid %q, want %q", sent[0].NamespaceUID, tt.want)
			}
		})
	}
}

// TestRefusedReadOfANamespaceIsReportedOnce, on the claim that waits for it, with the right that is missing.
func TestRefusedReadOfANamespaceIsReportedOnce(t *testing.T) {
	c := newSharedPath(t, 1, 1).clusters[0]
	recorder := record.NewFakeRecorder(10)
	c.events = events.NewReporter(recorder)
	client, ok := c.client.(*fake.Clientset)
	if !ok {
		t.Fatalf("the client is a %T", c.client)
	}
	client.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("namespaces"), historyNamespace, nil)
	})
	c.gatherer.Decide(c.addClaim("Delete", "").UID)
	s := ready(c.observe(historyFileSystem))
	if _, err := c.apply(t.Context(), s, planFor(s)); !apierrors.IsForbidden(err) {
		t.Errorf("got %v", err)
	}
	reported := written(recorder)
	if len(reported) != 1 || !strings.Contains(reported[0], "no mount Job can begin: reading what it is about failed") || !strings.Contains(reported[0], "namespaces") {
		t.Errorf("reported %q, want one sentence", reported)
	}
}
