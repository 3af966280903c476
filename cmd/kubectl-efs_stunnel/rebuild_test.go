package main

import (
	"encoding/json"
	"os"
	"path/filepath"
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
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/plugin/rebuild"
)

// bindClaims plays the cluster's binder: a claim that names a volume is bound at once.
func (c *ledgerCluster) bindClaims() {
	c.Helper()
	claims := corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")
	c.PrependReactor("create", claims.Resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
		create, _ := action.(clienttesting.CreateAction)
		claim, ok := create.GetObject().DeepCopyObject().(*corev1.PersistentVolumeClaim)
		if !ok || claim.Spec.VolumeName == "" {
			return false, nil, nil
		}
		claim.Namespace, claim.UID, claim.Status.Phase = action.GetNamespace(), types.UID("new-"+claim.Name), corev1.ClaimBound
		return true, claim, c.Tracker().Create(claims, claim, claim.Namespace)
	})
}

// add adds objects to the cluster.
func (c *ledgerCluster) add(objects ...runtime.Object) {
	c.Helper()
	for _, object := range objects {
		if err := c.Tracker().Add(object); err != nil {
			c.Fatal(err)
		}
	}
}

func (c *ledgerCluster) volume(name string) *corev1.PersistentVolume {
	c.Helper()
	volume, err := c.CoreV1().PersistentVolumes().Get(c.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		c.Fatal(err)
	}
	return volume
}

func (c *ledgerCluster) claim(namespace, name string) *corev1.PersistentVolumeClaim {
	c.Helper()
	claim, err := c.CoreV1().PersistentVolumeClaims(namespace).Get(c.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		c.Fatal(err)
	}
	return claim
}

// writes returns the changes that the plugin has made to volumes and claims.
func (c *ledgerCluster) writes() (writes int) {
	for _, action := range c.Actions() {
		if resource := action.GetResource().Resource; strings.HasPrefix(resource, "persistentvolume") && action.GetVerb() != "list" && action.GetVerb() != "get" {
			writes++
		}
	}
	return writes
}

const oldMark = 2 * requests.FreshMark

func TestVolumesOfALostClusterAreRebuilt(t *testing.T) {
	c := newLedgerCluster(t)
	c.bindClaims()
	a, b := claimOf(goneCluster, "team", "a", "1"), claimOf(goneCluster, "later", "b", "2")
	own := claimOf(ownCluster, "team", "own", "3")
	for _, owner := range []operations.Owner{a, b, own} {
		c.own(owner, oldMark)
	}
	args := []string{"rebuild", "--cluster", goneCluster}
	got := invoke(t, c.Clientset, args...)
	if got.code != exitHealthy || strings.Count(got.stdout, "\nkind: PersistentVolume\n") != 1 || strings.Count(got.stdout, "\nkind: PersistentVolumeClaim\n") != 1 {
		t.Errorf("a dry run: %+v", got)
	}
	if c.writes() != 0 || !strings.Contains(got.stderr, "namespace later does not exist") || !strings.Contains(got.stderr, "--apply does this for 1") {
		t.Errorf("a dry run made %d writes: %s", c.writes(), got.stderr)
	}
	got = invoke(t, c.Clientset, append(args, "--apply")...)
	if got.code != exitHealthy || !strings.Contains(got.stderr, "applied: 1 of 1") {
		t.Fatalf("%+v", got)
	}
	volume := c.volume(a.Volume)
	if volume == nil || volume.Spec.NFS.Path != "/team/a" || volume.Spec.ClaimRef.Name != "a" || volume.Spec.ClaimRef.UID != "" ||
		volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain || !strings.Contains(strings.Join(volume.Spec.MountOptions, ","), "port=20490") {
		t.Errorf("%+v", volume)
	}
	if claim := c.claim("team", "a"); claim == nil || claim.Spec.VolumeName != a.Volume || *claim.Spec.StorageClassName != "efs" {
		t.Errorf("%+v", claim)
	}
	if c.volume(b.Volume) != nil || c.ledgerEntry(b)["cluster"] != goneCluster || c.volume(own.Volume) != nil {
		t.Error("what has no namespace, or was not asked for, has a volume or another owner")
	}
	entry := c.ledgerEntry(a)
	if entry["cluster"] != ownCluster || entry["takenFrom"] != goneCluster || entry["made"] != true || entry["claimUID"] != a.ClaimUID {
		t.Errorf("%v", entry)
	}
	writes := c.writes()
	if got = invoke(t, c.Clientset, append(args, "--apply")...); got.code != exitHealthy || c.writes() != writes || !strings.Contains(got.stdout, "exists") {
		t.Errorf("a second run made %d writes: %+v", c.writes()-writes, got)
	}
	c.add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "later", UID: "later-uid"}})
	if got = invoke(t, c.Clientset, append(args, "--apply")...); got.code != exitHealthy || c.claim("later", "b") == nil || c.volume(b.Volume) == nil || c.ledgerEntry(b)["namespaceUID"] != "later-uid" {
		t.Errorf("once the namespace exists: %+v, %v", got, c.ledgerEntry(b))
	}
	c.expectNoJobs()
}

func (c *ledgerCluster) ledgerEntry(owner operations.Owner) (entry map[string]any) {
	c.Helper()
	data, err := os.ReadFile(c.entry(owner, ""))
	if err == nil {
		err = json.Unmarshal(data, &entry)
	}
	if err != nil {
		c.Error(err)
	}
	return entry
}

func TestWhatRebuildRefuses(t *testing.T) {
	a, b := claimOf(goneCluster, "team", "a", "1"), claimOf(ownCluster, "team", "b", "2")
	object := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: "team"} }
	tests := map[string]struct {
		args    []string
		age     time.Duration // of the lost cluster's mark
		objects []runtime.Object
		folder  func(*ledgerCluster)
		code    int
		text    string
	}{
		"one that lives":     {[]string{"--cluster", goneCluster}, time.Hour, nil, nil, exitUnknown, `seems to live: it recorded an owner of "/team/a" 1h0m`},
		"another size":       {[]string{"--size", "much"}, oldMark, nil, nil, exitUnknown, `"much" for "--size"`},
		"another policy":     {[]string{"--reclaim-policy", "Recycle"}, oldMark, nil, nil, exitUnknown, "want Retain or Delete"},
		"no uid":             {[]string{"--cluster", "a\nb"}, oldMark, nil, nil, exitUnknown, "control characters"},
		"an unknown cluster": {[]string{"--cluster", "c3"}, oldMark, nil, nil, exitHealthy, "cluster c3: no ledger has an owner of it"},
		"a claim that exists": {[]string{"--cluster", goneCluster}, oldMark, []runtime.Object{
			&corev1.PersistentVolumeClaim{ObjectMeta: object("a"), Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "other"}},
		}, nil, exitUnknown, "claim team/a exists, with volume other: it is left alone"},
		"a volume that exists": {[]string{"--cluster", goneCluster}, oldMark, []runtime.Object{
			&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: a.Volume}},
		}, nil, exitUnknown, "exists, and has another directory"},
		"a claim that waits for its volume": {nil, oldMark, []runtime.Object{
			&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "b", UID: types.UID(b.ClaimUID)}},
		}, nil, exitHealthy, "claim team/b waits for it"},
		"a directory that is gone": {[]string{"--cluster", goneCluster}, oldMark, nil, func(c *ledgerCluster) {
			if err := os.RemoveAll(filepath.Join(c.folder, "team", "a")); err != nil {
				c.Fatal(err)
			}
		}, exitUnknown, "there is no such directory"},
		"a class that is gone": {[]string{"--cluster", goneCluster}, oldMark, nil, func(c *ledgerCluster) {
			if err := c.StorageV1().StorageClasses().Delete(c.Context(), "efs", metav1.DeleteOptions{}); err != nil {
				c.Fatal(err)
			}
		}, exitUnknown, `there is no storage class "efs"`},
		"a class of another provisioner": {[]string{"--cluster", goneCluster, "--class", "other"}, oldMark, nil, func(c *ledgerCluster) {
			if err := c.StorageV1().StorageClasses().Delete(c.Context(), "efs", metav1.DeleteOptions{}); err != nil {
				c.Fatal(err)
			}
		}, exitUnknown, `storage class "other" is of provisioner "example.com/other"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := newLedgerCluster(t)
			c.own(a, tt.age)
			c.own(b, 0)
			c.add(tt.objects...)
			if tt.folder != nil {
				tt.folder(c)
			}
			before := len(c.Actions())
			got := invoke(t, c.Clientset, append([]string{"rebuild", "--apply", "--timeout=1s"}, tt.args...)...)
			if got.code != tt.code || !strings.Contains(got.stdout+got.stderr, tt.text) {
				t.Errorf("%+v", got)
			}
			if c.writes() != 0 || c.ledgerEntry(a)["cluster"] != goneCluster {
				t.Errorf("something was changed: %v", c.Actions()[before:])
			}
			c.expectNoJobs()
		})
	}
}

func TestALivingClusterIsRebuiltByForce(t *testing.T) {
	c := newLedgerCluster(t)
	c.bindClaims()
	a := claimOf(goneCluster, "team", "a", "1")
	c.own(a, time.Minute)
	if got := invoke(t, c.Clientset, "rebuild", "--cluster", goneCluster, "--force", "--apply", "-o", "json"); got.code != exitHealthy || c.claim("team", "a") == nil {
		t.Errorf("%+v", got)
	}
}

// TestRetainedDataIsRebuiltIfItIsAskedFor without the right to remove it.
func TestRetainedDataIsRebuiltIfItIsAskedFor(t *testing.T) {
	c := newLedgerCluster(t)
	c.bindClaims()
	a := claimOf(goneCluster, "team", "a", "1")
	c.own(a, 0)
	c.do(operations.Operation{Kind: operations.Release, Owner: a, Path: "/team/a"})
	at := time.Now().Add(-oldMark)
	if err := os.Chtimes(c.entry(a, ".retained"), at, at); err != nil {
		t.Fatal(err)
	}
	args := []string{"rebuild", "--cluster", goneCluster, "--reclaim-policy", "Delete", "--apply"}
	if got := invoke(t, c.Clientset, args...); got.code != exitHealthy || !strings.Contains(got.stdout, "--retained") || c.volume(a.Volume) != nil {
		t.Errorf("%+v", got)
	}
	for range 2 {
		got := invoke(t, c.Clientset, append(args, "--retained")...)
		volume := c.volume(a.Volume)
		if got.code != exitHealthy || volume == nil || volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain || c.ledgerEntry(a)["made"] != nil {
			t.Errorf("%+v, %+v", got, volume)
		}
	}
}

// TestHostileOwnersAreNotRebuilt: whoever is root on the file system writes what is in an entry.
func TestHostileOwnersAreNotRebuilt(t *testing.T) {
	c := newLedgerCluster(t)
	good := claimOf(ownCluster, "team", "a", "1")
	c.own(good, 0)
	const evil = "\x1b[2J\x9b31m\r\nNAME\tx\u202e\u0000\xff"
	for name, entry := range map[string]map[string]any{
		"@v\x1b[2J\n":            {"claim": "a", "namespace": "team", "claimUID": "x"},
		"@pvc-1":                 {"claim": evil, "namespace": "team", "claimUID": good.ClaimUID},
		"@pvc-2":                 {"claim": "a", "namespace": evil, "claimUID": good.ClaimUID},
		"@pvc-3":                 {"claim": "a3", "namespace": "team", "claimUID": evil},
		"@pvc-4":                 {"claim": "a4", "namespace": "team", "claimUID": good.ClaimUID, "class": evil},
		"@" + good.Volume + "aa": {"claim": strings.Repeat("y", 300), "namespace": "team", "claimUID": good.ClaimUID},
	} {
		entry["cluster"] = ownCluster
		text, err := json.Marshal(entry)
		if err == nil {
			folder := filepath.Join(c.folder, wellknown.OwnersDirectory, "dir\x1b[31m\n\xff"+strings.Repeat("y", 240))
			err = os.MkdirAll(folder, 0o700)
			if err == nil {
				err = os.WriteFile(filepath.Join(folder, name), text, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, format := range []string{"", "json", "yaml"} {
		got := invoke(t, c.Clientset, "rebuild", "-o", format)
		if text := got.stdout + got.stderr; strings.ContainsAny(text, "\x1b\u009b\r\t\x00\u202e") || !utf8.ValidString(text) || got.code != exitUnknown {
			t.Errorf("%s: %+v", format, got)
		}
		if strings.Count(got.stdout, good.Volume) == 0 || strings.Contains(got.stdout, "pvc-1") {
			t.Errorf("%s: %s", format, got.stdout)
		}
	}
	c.expectNoJobs()
}

// TestPrintedObjectsAreThoseOfThePlan also where a path has characters that no terminal should get.
func TestPrintedObjectsAreThoseOfThePlan(t *testing.T) {
	c := newLedgerCluster(t)
	owner := claimOf(ownCluster, "team", "a", "1")
	path := "/team/right\u202eleft \U000e0041: \"'"
	c.do(operations.Operation{Kind: operations.Setup, Owner: owner, Path: path, Directory: operations.Directory{UID: os.Getuid(), GID: os.Getgid()}})
	got := invoke(t, c.Clientset, "rebuild")
	if strings.Contains(got.stdout, "\u202e") || strings.Contains(got.stdout, "\U000e0041") {
		t.Errorf("%q", got.stdout)
	}
	_, document, _ := strings.Cut(got.stdout, "---\n")
	document, _, _ = strings.Cut(document, "---\n")
	var volume corev1.PersistentVolume
	if err := yaml.Unmarshal([]byte(document), &volume); err != nil || volume.Spec.NFS == nil || volume.Spec.NFS.Path != path {
		t.Errorf("%v: %+v\n%s", err, volume.Spec, document)
	}
	got = invoke(t, c.Clientset, "rebuild", "-o", "json")
	var list corev1.List
	if err := json.Unmarshal([]byte(got.stdout), &list); err != nil || len(list.Items) != 2 || strings.Contains(got.stdout, "\u202e") {
		t.Errorf("%v: %s", err, got.stdout)
	}
}

// TestRightsThatRebuildLacksAreNamed before anything is changed.
func TestRightsThatRebuildLacksAreNamed(t *testing.T) {
	for _, resource := range []string{"persistentvolumes", "persistentvolumeclaims", "namespaces", "storageclasses"} {
		c := newLedgerCluster(t)
		c.own(claimOf(ownCluster, "team", "a", "1"), 0)
		c.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(corev1.Resource(resource), "", nil)
		})
		got := invoke(t, c.Clientset, "rebuild", "--apply")
		if got.code != exitUnknown || !strings.Contains(got.stderr, "no right to list "+resource) || c.writes() != 0 {
			t.Errorf("%s: %+v", resource, got)
		}
	}
}

// TestAnObjectThatCannotBeCreatedIsSaid and the others are.
func TestAnObjectThatCannotBeCreatedIsSaid(t *testing.T) {
	c := newLedgerCluster(t)
	c.bindClaims()
	a, b := claimOf(ownCluster, "team", "a", "1"), claimOf(ownCluster, "team", "b", "2")
	c.own(a, 0)
	c.own(b, 0)
	c.PrependReactor("create", "persistentvolumes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		create, _ := action.(clienttesting.CreateAction)
		volume, _ := create.GetObject().(*corev1.PersistentVolume)
		return volume.Name == a.Volume, nil, apierrors.NewForbidden(corev1.Resource("persistentvolumes"), a.Volume, nil)
	})
	got := invoke(t, c.Clientset, "rebuild", "--apply", "-o", "json")
	var items []rebuild.Item
	err := json.Unmarshal([]byte(got.stdout), &items)
	if err != nil || len(items) != 2 || items[0].State != rebuild.Failed || items[1].State != rebuild.Done || got.code != exitUnknown {
		t.Errorf("%v: %+v", err, got)
	}
	if c.claim("team", "a") != nil || c.claim("team", "b") == nil {
		t.Error("a claim without its volume, or none")
	}
}
