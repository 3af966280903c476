package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/plugin/ledger"
)

func TestTrashIsListed(t *testing.T) {
	c := newLedgerCluster(t)
	a, b := claimOf(ownCluster, "team", "a", "1"), claimOf(goneCluster, "other", "b", "2")
	c.discard(a, "forever")
	c.discard(b, "1h")

	got := invoke(t, c.Clientset, "trash", "list")
	for _, want := range []string{testFS, "team/a", "forever", "this", "other/b", goneCluster, a.ClaimUID} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("%q is missing:\n%s", want, got.stdout)
		}
	}
	got = invoke(t, c.Clientset, "trash", "list", "-n", "team", "-o", "json")
	var items []ledger.TrashItem
	if err := json.Unmarshal([]byte(got.stdout), &items); err != nil || len(items) != 1 || items[0].Claim != "a" || got.code != exitHealthy {
		t.Errorf("%+v, %v", got, err)
	}
	if got = invoke(t, c.Clientset, "trash", "list", "-n", "none", "-o", "yaml"); got.stdout != "[]\n" {
		t.Errorf("%+v", got)
	}
	c.expectNoJobs()
}

// TestHostileRecordsAreListed: whoever is root on the file system writes what is in a record.
func TestHostileRecordsAreListed(t *testing.T) {
	c := newLedgerCluster(t)
	a := claimOf(ownCluster, "team", "a", "1")
	c.discard(a, "forever")
	const evil = "\x1b[2J\x9b31m\r\nNAME\tx\u202e\u0000\xff"
	text, err := json.Marshal(map[string]any{
		"volume": evil, "path": evil, "keep": "forever", "deleted": "2026-01-02T03:04:05Z",
		"owner": map[string]any{"cluster": evil, "namespace": evil, "claim": evil, "claimUID": evil, "class": evil},
	})
	if err != nil {
		t.Fatal(err)
	}
	record := filepath.Join(c.folder, wellknown.TrashDirectory, "NEVER", "@"+a.Volume)
	if err := os.WriteFile(record, text, 0o600); err != nil {
		t.Fatal(err)
	}
	strange := filepath.Join(c.folder, wellknown.TrashDirectory, "dir\x1b[31m\n\xff"+strings.Repeat("y", 240))
	if err := os.Mkdir(strange, 0o700); err != nil {
		t.Fatal(err)
	}
	for format, lines := range map[string]int{"": 3, "json": -1, "yaml": -1} {
		got := invoke(t, c.Clientset, "trash", "list", "-o", format)
		if strings.ContainsAny(got.stdout, "\x1b\u009b\r\t\x00\u202e") || !utf8.ValidString(got.stdout) || got.code != exitHealthy {
			t.Errorf("%s: %q", format, got.stdout)
		}
		if n := strings.Count(got.stdout, "\n"); lines > 0 && n != lines {
			t.Errorf("%d lines, want %d:\n%s", n, lines, got.stdout)
		}
	}
}

func TestTrashIsEmptied(t *testing.T) {
	a, b := claimOf(ownCluster, "team", "a", "1"), claimOf(ownCluster, "other", "b", "2")
	foreign := claimOf(goneCluster, "team", "a", "3")
	tests := map[string]struct {
		args   []string
		answer string // of the user
		left   string // claims' last digits
		code   int
		stderr string
	}{
		"all of this cluster":        {[]string{"--all", "--yes"}, "", "3", exitHealthy, testFS + ": 2 directories"},
		"a namespace":                {[]string{"-n", "team", "--yes"}, "", "23", exitHealthy, "1 directories"},
		"a claim by its name":        {[]string{"--claim", "b", "-n", "other", "--yes"}, "", "13", exitHealthy, "1 directories"},
		"a claim by its uid":         {[]string{"--claim", a.ClaimUID, "--yes"}, "", "23", exitHealthy, "1 directories"},
		"of a cluster that is named": {[]string{"--all", "--cluster", goneCluster, "--yes"}, "", "12", exitHealthy, "1 directories"},
		"confirmed":                  {[]string{"--all"}, "y\n", "3", exitHealthy, "Remove 2 directories for good? [y/N]"},
		"not confirmed":              {[]string{"--all"}, "n\n", "123", exitUnknown, "not confirmed"},
		"without an answer":          {[]string{"--all"}, "", "123", exitUnknown, "not confirmed"},
		"a claim that is not there":  {[]string{"--claim", "a,none", "--yes"}, "", "123", exitUnknown, "nothing of none in namespace team"},
		"a claim of another cluster": {[]string{"--claim", foreign.ClaimUID, "--yes"}, "", "123", exitUnknown, "nothing of " + foreign.ClaimUID},
		"nothing chosen":             {[]string{"--yes"}, "", "123", exitUnknown, "want --all, --namespace or --claim"},
		"all and a namespace":        {[]string{"--all", "-n", "team", "--yes"}, "", "123", exitUnknown, "neither --namespace nor --claim"},
		"an empty claim":             {[]string{"-n", "team", "--claim", "", "--yes"}, "", "123", exitUnknown, "--claim is empty"},
		"a claim and an empty one":   {[]string{"-n", "team", "--claim", "a,", "--yes"}, "", "123", exitUnknown, "--claim is empty"},
		"an empty cluster":           {[]string{"--all", "--cluster", "", "--yes"}, "", "123", exitUnknown, "--cluster is empty"},
		"an empty file system":       {[]string{"--all", "--file-system", "", "--yes"}, "", "123", exitUnknown, "--file-system is empty"},
		"an unknown file system":     {[]string{"--all", "--file-system", "fs-1", "--yes"}, "", "123", exitUnknown, "not in the table: want " + testFS},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := newLedgerCluster(t)
			c.discard(a, "forever")
			c.discard(b, "1h")
			c.discard(foreign, "forever")
			got := invokeWith(t, c.Clientset, tt.answer, append([]string{"trash", "empty"}, tt.args...)...)
			if got.code != tt.code || !strings.Contains(got.stderr, tt.stderr) {
				t.Errorf("%+v", got)
			}
			left := ""
			for digit, owner := range map[string]bool{"1": c.isTrashed(a), "2": c.isTrashed(b), "3": c.isTrashed(foreign)} {
				if owner != strings.Contains(tt.left, digit) {
					left += digit
				}
			}
			if left != "" {
				t.Errorf("claims %s are, or are not, in the trash:\n%s", left, got.stderr)
			}
			c.expectNoJobs()
		})
	}
}

// TestRefusedRestores: nothing is created.
func TestRefusedRestores(t *testing.T) {
	a := claimOf(ownCluster, "team", "a", "1")
	earlier := claimOf(ownCluster, "team", "earlier", "2")
	earlier.NamespaceUID = "bbbbbbbb-0000-4000-8000-000000000001"
	elsewhere, foreign := claimOf(ownCluster, "other", "elsewhere", "3"), claimOf(goneCluster, "team", "foreign", "4")
	again := claimOf(ownCluster, "team", "a", "5")
	noClass := claimOf(ownCluster, "team", "no-class", "6")
	noClass.Class = ""
	tests := map[string]struct {
		args []string
		want string
	}{
		"not in the trash":              {[]string{"none"}, "nothing of claim none in namespace team"},
		"of another namespace":          {[]string{"elsewhere"}, "belongs to namespace other"},
		"of another cluster":            {[]string{"foreign"}, "belongs to cluster " + goneCluster},
		"of an earlier namespace":       {[]string{"earlier"}, "an earlier namespace team"},
		"two of a name":                 {[]string{"a"}, "name one by its uid: " + a.ClaimUID + ", " + again.ClaimUID},
		"without a class":               {[]string{"no-class"}, "name one with --class"},
		"a class that is not there":     {[]string{a.ClaimUID, "--class", "gone"}, "no storage class gone"},
		"another provisioner's class":   {[]string{a.ClaimUID, "--class", "other"}, "is of provisioner example.com/other"},
		"a claim that exists":           {[]string{a.ClaimUID, "--name", "taken"}, "claim team/taken exists"},
		"no size":                       {[]string{a.ClaimUID, "--size", "big"}, `"big" for "--size"`},
		"a size below nothing":          {[]string{a.ClaimUID, "--size=-1Gi"}, "requests.storage"},
		"a shared directory, for a pod": {[]string{a.ClaimUID, "--access-mode", "ReadWriteOncePod", "--volume-name", "x"}, "ReadWriteOncePod"},
		"a name that is a path":         {[]string{a.ClaimUID, "--volume-name", "../x"}, "volume_name"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := newLedgerCluster(t)
			for _, owner := range []operations.Owner{a, earlier, elsewhere, foreign, again, noClass} {
				c.discard(owner, "forever")
			}
			taken := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "taken"}}
			if err := c.Tracker().Add(taken); err != nil {
				t.Fatal(err)
			}
			got := invoke(t, c.Clientset, append([]string{"trash", "restore"}, tt.args...)...)
			if got.code != exitUnknown || !strings.Contains(got.stderr, tt.want) {
				t.Errorf("%+v", got)
			}
			claims, err := c.CoreV1().PersistentVolumeClaims("").List(t.Context(), metav1.ListOptions{})
			if err != nil || len(claims.Items) != 1 {
				t.Errorf("claims %v, %v", claims.Items, err)
			}
			c.expectNoJobs()
		})
	}
}

func TestRestoreWaitsUntilTheClaimIsBound(t *testing.T) {
	a := claimOf(ownCluster, "team", "a", "1")
	tests := map[string]struct {
		answer func(*corev1.PersistentVolumeClaim) // what the manager does with the claim
		code   int
		stderr string
	}{
		"bound": {func(claim *corev1.PersistentVolumeClaim) {
			claim.Spec.VolumeName, claim.Status.Phase = "pvc-new", corev1.ClaimBound
		}, exitHealthy, "claim team/a: bound to volume pvc-new"},
		"rejected": {func(claim *corev1.PersistentVolumeClaim) {
			claim.Annotations[wellknown.AnnotationRejectReason] = "the path is taken"
		}, exitUnknown, "the path is taken"},
		"not in time": {func(*corev1.PersistentVolumeClaim) {}, exitUnknown, "claim team/a is there, but has no volume"},
		"says what it waits for": {func(claim *corev1.PersistentVolumeClaim) {
			claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{
				Type: wellknown.ConditionProvisioned, Status: corev1.ConditionFalse, Reason: "NoMountJob", Message: "quota",
			}}
		}, exitUnknown, "claim team/a: NoMountJob: quota"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := newLedgerCluster(t)
			c.discard(a, "forever")
			var created *corev1.PersistentVolumeClaim
			c.PrependReactor("create", "persistentvolumeclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
				create, _ := action.(clienttesting.CreateAction)
				created, _ = create.GetObject().(*corev1.PersistentVolumeClaim)
				answered := created.DeepCopy()
				tt.answer(answered)
				return true, answered, c.Tracker().Add(answered)
			})
			got := invoke(t, c.Clientset, "trash", "restore", "a", "--timeout", "10ms", "--volume-name", "back")
			if got.code != tt.code || !strings.Contains(got.stderr, tt.stderr) {
				t.Errorf("%+v", got)
			}
			labels := created.Spec.Selector.MatchLabels
			if created.Annotations[wellknown.AnnotationRestore] != a.ClaimUID || labels[wellknown.LabelFileSystemID] != testFS || labels[wellknown.LabelVolumeName] != "back" || *created.Spec.StorageClassName != "efs" {
				t.Errorf("%+v", created)
			}
		})
	}
}

// TestInterruptLeavesNoJob: the plugin is interrupted while the Job's pod does not start.
func TestInterruptLeavesNoJob(t *testing.T) {
	c := newLedgerCluster(t)
	ctx, cancel := context.WithCancel(t.Context())
	c.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		cancel()
		return true, &corev1.PodList{}, nil
	})
	got := invokeIn(ctx, t, c.Clientset, "", "trash", "list")
	if got.code != exitUnknown || !strings.Contains(got.stderr, "waiting for Job efs-ledger-"+testFS) || len(c.ran) != 1 {
		t.Errorf("%+v, Jobs %q", got, c.ran)
	}
	c.expectNoJobs()
}
