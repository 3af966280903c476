package caches_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

const (
	mine    = types.UID("11111111-1111-1111-1111-111111111111")
	another = types.UID("22222222-2222-2222-2222-222222222222")
	third   = types.UID("33333333-3333-3333-3333-333333333333")
)

// TestVolumesOfClaim: a volume is a claim's by its name or by its claimRef, and found once.
func TestVolumesOfClaim(t *testing.T) {
	c, err := caches.New(fake.NewClientset(), nil, "efs-stunnel")
	if err != nil {
		t.Fatal(err)
	}
	for name, claim := range map[string]types.UID{
		volumes.VolumeName(mine):    mine,  // as made
		volumes.VolumeName(another): mine,  // retained, then given to another claim
		"original":                  mine,  // of the original system
		"static":                    third, // not asked for
		"unclaimed":                 "",
	} {
		volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if claim != "" {
			volume.Spec.ClaimRef = &corev1.ObjectReference{UID: claim}
		}
		if err := c.Volumes.GetStore().Add(volume); err != nil {
			t.Fatal(err)
		}
	}
	for uid, want := range map[types.UID][]string{
		mine:    {"original", volumes.VolumeName(mine), volumes.VolumeName(another)},
		another: {volumes.VolumeName(another)},
		third:   {"static"},
		"4":     nil,
	} {
		var got []string
		for _, volume := range c.VolumesOfClaim(uid) {
			got = append(got, volume.Name)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("claim %s has volumes %q, want %q", uid, got, want)
		}
	}
}

// TestCopiesOf a claim are those that wait for its copy: a source that comes or changes is about them.
func TestCopiesOf(t *testing.T) {
	c, err := caches.New(fake.NewClientset(), nil, "efs-stunnel")
	if err != nil {
		t.Fatal(err)
	}
	source := func(kind, name string) func(*corev1.PersistentVolumeClaim) {
		return func(claim *corev1.PersistentVolumeClaim) {
			claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: kind, Name: name}
		}
	}
	for name, edit := range map[string]func(*corev1.PersistentVolumeClaim){
		"copy": source("PersistentVolumeClaim", "source"),
		"done": func(claim *corev1.PersistentVolumeClaim) {
			source("PersistentVolumeClaim", "source")(claim)
			claim.Spec.VolumeName = "pv"
		},
		"copy-of-another": source("PersistentVolumeClaim", "other"),
		"snapshot":        source("VolumeSnapshot", "source"),
		"empty":           func(*corev1.PersistentVolumeClaim) {},
		"elsewhere": func(claim *corev1.PersistentVolumeClaim) {
			source("PersistentVolumeClaim", "source")(claim)
			claim.Namespace = "other"
		},
	} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		edit(claim)
		if err := c.Claims.GetStore().Add(claim); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string][]string{"source": {"copy"}, "other": {"copy-of-another"}, "copy": nil} {
		var got []string
		for _, claim := range c.CopiesOf(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}) {
			got = append(got, claim.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("copies of %s: %q, want %q", name, got, want)
		}
	}
}
