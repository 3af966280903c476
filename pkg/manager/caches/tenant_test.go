//go:build !race

package caches

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// TestHourOfAHostileTenant has a request of one namespace each second, with what the role edit allows: claims
// with forged annotations, patches with a quarter of a megabyte, claims with as many labels, and copies. The
// claims of others stay as they are, and the memory is far from the shipped limit of 512 MiB.
func TestHourOfAHostileTenant(t *testing.T) {
	const p, beta, ga = wellknown.DefaultProvisioner, wellknown.AnnotationBetaStorageProvisioner, wellknown.AnnotationStorageProvisioner
	c, err := New(fake.NewClientset(), nil, "efs-stunnel")
	if err != nil {
		t.Fatal(err)
	}
	small, before := newTrimmer(), heapMiB()
	store := func(name string, claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
		claim.Name = name
		if err := c.Claims.GetStore().Add(trimmedClaim(t, small, claim)); err != nil {
			t.Fatal(err)
		}
		return claim
	}
	junk := strings.Repeat("x", 250<<10)
	for second := range 3600 {
		unique := fmt.Sprint(second)
		claim := annotatedClaim(map[string]string{beta: p, ga: p})
		switch second % 4 {
		case 0:
			claim.Annotations = map[string]string{beta: p + "\x00" + ga + "\x00" + p}
		case 1:
			claim.Annotations["note"] = unique + junk
		case 2:
			claim.Labels = map[string]string{}
			for n := range 300 {
				claim.Labels[fmt.Sprint(unique, "-", n)] = junk[:60]
			}
		case 3:
			claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: unique + junk[:1000]}
		}
		store("claim-"+fmt.Sprint(second%2000), claim)
		if second%60 == 0 {
			victim := annotatedClaim(map[string]string{beta: p, ga: p})
			victim.Namespace = "victim"
			if got := volumes.AskedProvisioner(store("data-"+unique, victim)); got != p {
				t.Fatalf("after %d s, the claim of another namespace asks %q for a volume", second, got)
			}
		}
	}
	if took := heapMiB() - before; took > 64 {
		t.Errorf("it takes %.0f MiB", took)
	}
	runtime.KeepAlive(c)
	runtime.KeepAlive(small)
}
