package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/plugin/ledger"
)

// own makes a claim's directory, whose entry is as old.
func (c *ledgerCluster) own(owner operations.Owner, age time.Duration) {
	c.Helper()
	path := "/" + owner.Namespace + "/" + owner.Claim
	c.do(operations.Operation{Kind: operations.Setup, Owner: owner, Path: path, Directory: operations.Directory{UID: os.Getuid(), GID: os.Getgid()}})
	at := time.Now().Add(-age)
	if err := os.Chtimes(c.entry(owner, ""), at, at); err != nil {
		c.Fatal(err)
	}
}

func (c *ledgerCluster) entry(owner operations.Owner, state string) string {
	return filepath.Join(c.folder, wellknown.OwnersDirectory, owner.Namespace, owner.Claim, "@"+owner.Volume+state)
}

func TestOwnersAreListedWithTheirStates(t *testing.T) {
	c := newLedgerCluster(t)
	bound, waiting, gone := claimOf(ownCluster, "team", "bound", "1"), claimOf(ownCluster, "team", "waiting", "2"), claimOf(ownCluster, "team", "gone", "3")
	retained, foreign := claimOf(ownCluster, "team", "retained", "4"), claimOf(goneCluster, "other", "foreign", "5")
	for _, owner := range []operations.Owner{bound, waiting, gone, retained, foreign} {
		c.own(owner, 0)
	}
	c.do(operations.Operation{Kind: operations.Release, Owner: retained, Path: "/team/retained"})
	for _, object := range []runtime.Object{
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: bound.Volume}},
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "waiting", UID: types.UID(waiting.ClaimUID)}},
	} {
		if err := c.Tracker().Add(object); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]ledger.OwnerState{
		"bound": ledger.Live, "waiting": ledger.Live, "gone": ledger.Gone,
		"retained": ledger.Retained, "foreign": ledger.Elsewhere,
	}
	if got := c.states("owners", "list"); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	delete(want, "foreign")
	if got := c.states("owners", "list", "-n", "team"); !maps.Equal(got, want) {
		t.Errorf("of a namespace: %v, want %v", got, want)
	}
	if got := invoke(t, c.Clientset, "owners", "list"); !strings.Contains(got.stdout, "/team/gone") || strings.Count(got.stdout, "\n") != 6 {
		t.Errorf("%+v", got)
	}
	c.PrependReactor("list", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("persistentvolumes"), "", nil)
	})
	if got := c.states("owners", "list"); got["gone"] != ledger.Unknown || got["bound"] != ledger.Unknown || got["waiting"] != ledger.Live {
		t.Errorf("without a right: %v", got)
	}
	c.expectNoJobs()
}

// states returns the states of the owners that a command prints, by claim.
func (c *ledgerCluster) states(args ...string) map[string]ledger.OwnerState {
	c.Helper()
	got := invoke(c.T, c.Clientset, append(args, "-o", "json")...)
	var items []ledger.OwnerItem
	if err := json.Unmarshal([]byte(got.stdout), &items); err != nil {
		c.Fatalf("%v: %+v", err, got)
	}
	states := map[string]ledger.OwnerState{}
	for _, item := range items {
		states[item.Claim] = item.State
	}
	return states
}

func TestOwnersOfAGoneClusterAreReleased(t *testing.T) {
	const old = 2 * requests.FreshMark
	a, b := claimOf(ownCluster, "team", "a", "1"), claimOf(goneCluster, "team", "b", "2")
	tests := map[string]struct {
		args   []string
		age    time.Duration // of the other cluster's mark
		code   int
		stderr string
		done   bool
	}{
		"a dry run":           {[]string{"--cluster", goneCluster}, old, exitHealthy, "--yes releases these 1 owners", false},
		"released":            {[]string{"--cluster", goneCluster, "--yes"}, old, exitHealthy, "1 of 1 owners are released", true},
		"one that lives":      {[]string{"--cluster", goneCluster, "--yes"}, time.Hour, exitUnknown, "seems to live", false},
		"forced":              {[]string{"--cluster", goneCluster, "--yes", "--force"}, time.Hour, exitHealthy, "1 of 1 owners are released", true},
		"this cluster":        {[]string{"--cluster", ownCluster, "--yes", "--force"}, old, exitUnknown, "is this cluster", false},
		"no cluster":          {[]string{"--yes"}, old, exitUnknown, "--cluster is missing", false},
		"an unknown cluster":  {[]string{"--cluster", "c3", "--yes"}, old, exitHealthy, "No ledger has such an owner", false},
		"another file system": {[]string{"--cluster", goneCluster, "--yes", "--file-system", "fs-1"}, old, exitUnknown, "not in the table", false},
		"no uid":              {[]string{"--cluster", "a\nb", "--yes"}, old, exitUnknown, "control characters", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := newLedgerCluster(t)
			c.own(a, old)
			c.own(b, tt.age)
			got := invoke(t, c.Clientset, append([]string{"owners", "release"}, tt.args...)...)
			if got.code != tt.code || !strings.Contains(got.stderr, tt.stderr) {
				t.Errorf("%+v", got)
			}
			_, err := os.Stat(c.entry(b, ".retained"))
			if done := err == nil; done != tt.done {
				t.Errorf("released: %v", done)
			}
			if _, err := os.Stat(c.entry(a, "")); err != nil {
				t.Error(err)
			}
			c.expectNoJobs()
		})
	}
}

// TestHostileEntriesAreListed: whoever is root on the file system writes what is in an entry.
func TestHostileEntriesAreListed(t *testing.T) {
	c := newLedgerCluster(t)
	c.own(claimOf(ownCluster, "team", "a", "1"), 0)
	const evil = "\x1b[2J\x9b31m\r\nNAME\tx\u202e\u0000\xff"
	text, err := json.Marshal(map[string]any{"cluster": evil, "namespace": evil, "claim": evil, "claimUID": evil, "class": evil})
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(c.folder, wellknown.OwnersDirectory, "dir\x1b[31m\n\xff"+strings.Repeat("y", 240))
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"@v\x1b[2J\n.leaving": text, "@damaged\n\xff": []byte("{")} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, format := range []string{"", "json", "yaml"} {
		got := invoke(t, c.Clientset, "owners", "list", "-o", format)
		if strings.ContainsAny(got.stdout, "\x1b\u009b\r\t\x00\u202e") || !utf8.ValidString(got.stdout) || got.code != exitHealthy {
			t.Errorf("%s: %+v", format, got)
		}
		if lines := slices.Collect(strings.Lines(got.stdout)); format == "" && len(lines) != 4 {
			t.Errorf("%d lines:\n%s", len(lines), got.stdout)
		}
	}
}
