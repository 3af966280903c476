//go:build !race

package caches

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

func trimmedClaim(t *testing.T, small *trimmer, claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	t.Helper()
	if _, err := small.trim(claim); err != nil {
		t.Fatal(err)
	}
	return claim
}

func annotatedClaim(annotations map[string]string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "data", Annotations: annotations}}
}

// TestForgedAnnotationChangesNoOtherClaim: a value may have any character, also one that separates.
func TestForgedAnnotationChangesNoOtherClaim(t *testing.T) {
	const p, beta, ga = wellknown.DefaultProvisioner, wellknown.AnnotationBetaStorageProvisioner, wellknown.AnnotationStorageProvisioner
	for _, forged := range []string{
		p + "\x00" + ga + "\x00" + p,
		p + fmt.Sprintf("%d:%s%d:%s", len(ga), ga, len(p), p),
		fmt.Sprintf("%d:%s", len(p), p),
	} {
		small := newTrimmer()
		trimmedClaim(t, small, annotatedClaim(map[string]string{beta: forged}))
		victim := trimmedClaim(t, small, annotatedClaim(map[string]string{beta: p, ga: p}))
		if got := volumes.AskedProvisioner(victim); got != p {
			t.Errorf("after %q, the annotations of another claim are %q", forged, victim.Annotations)
		}
	}
}

// TestForgedMountOptionChangesNoOtherVolume as annotations do not.
func TestForgedMountOptionChangesNoOtherVolume(t *testing.T) {
	small := newTrimmer()
	for _, options := range [][]string{{"hard\x00port=1"}, {"hard", "port=1"}, {"hard,port=1"}} {
		volume := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{MountOptions: slices.Clone(options)}}
		if _, err := small.trim(volume); err != nil || !slices.Equal(volume.Spec.MountOptions, options) {
			t.Errorf("got %q, %v, want %q", volume.Spec.MountOptions, err, options)
		}
	}
}

// heapMiB returns the heap in use after a garbage collection, in MiB.
func heapMiB() float64 { return float64(heap()) / (1 << 20) }

// TestClaimThatIsPatchedOftenTakesLittle: each patch is an event, and only the last one's object is kept.
func TestClaimThatIsPatchedOftenTakesLittle(t *testing.T) {
	small, before := newTrimmer(), heapMiB()
	var kept *corev1.PersistentVolumeClaim
	for i := range 300 {
		kept = trimmedClaim(t, small, annotatedClaim(map[string]string{"note": fmt.Sprint(i) + strings.Repeat("x", 250<<10)}))
	}
	if took := heapMiB() - before; took > 10 {
		t.Errorf("one claim of 250 KiB that was patched 300 times takes %.0f MiB", took)
	}
	runtime.KeepAlive(kept)
	runtime.KeepAlive(small)
}

// TestLargeClaimsTakeLittle wherever a user may write much.
func TestLargeClaimsTakeLittle(t *testing.T) {
	const size, count = 250 << 10, 30
	number := 0 // no claim has what another one has
	long := func() string { return fmt.Sprint(number) + strings.Repeat("x", size) }
	labels := func() map[string]string {
		all := map[string]string{}
		for i := range size / 100 {
			all[fmt.Sprintf("label-%d-%d", number, i)] = fmt.Sprintf("%060d", i)
		}
		return all
	}
	for name, edit := range map[string]func(*corev1.PersistentVolumeClaim){
		"an annotation": func(c *corev1.PersistentVolumeClaim) { c.Annotations = map[string]string{"note": long()} },
		"annotations as long as a path": func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{}
			for i := range size >> 10 {
				c.Annotations[fmt.Sprint(i)] = fmt.Sprint(number) + strings.Repeat("x", 1000)
			}
		},
		"kubectl's annotation": func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: long()}
		},
		"usage": func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{wellknown.AnnotationUsage: long()}
		},
		"labels": func(c *corev1.PersistentVolumeClaim) { c.Labels = labels() },
		"a selector": func(c *corev1.PersistentVolumeClaim) {
			c.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels(), MatchExpressions: []metav1.LabelSelectorRequirement{{Key: long()}}}
		},
		"finalizers": func(c *corev1.PersistentVolumeClaim) { c.Finalizers = slices.Sorted(maps.Keys(labels())) },
		"owners":     func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences = []metav1.OwnerReference{{Name: long()}} },
		"a source": func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{Name: long()}
		},
		"a volume's name":  func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = long() },
		"the access modes": func(c *corev1.PersistentVolumeClaim) { c.Spec.AccessModes = slices.Repeat(modes(), size/10) },
	} {
		t.Run(name, func(t *testing.T) {
			small, before := newTrimmer(), heapMiB()
			var kept [count]*corev1.PersistentVolumeClaim
			for i := range kept {
				number = i
				claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(i))}}
				edit(claim)
				kept[i] = trimmedClaim(t, small, trimmedClaim(t, small, claim))
			}
			if took := (heapMiB() - before) * 1024 / count; took > 64 {
				t.Errorf("a claim takes %.0f KiB", took)
			}
			runtime.KeepAlive(kept)
			runtime.KeepAlive(small)
		})
	}
}

// TestLargeClaimKeepsWhatLoopsRead of the annotations with short values, and what it is refused for.
func TestLargeClaimKeepsWhatLoopsRead(t *testing.T) {
	claim := annotatedClaim(map[string]string{
		"note": strings.Repeat("x", 250<<10), "path": strings.Repeat("p", wellknown.MaxPathBytes),
		wellknown.AnnotationStorageProvisioner: wellknown.DefaultProvisioner,
	})
	claim.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}, MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x"}}}
	claim.Spec.AccessModes, claim.Spec.Resources.Requests = modes(), gibibytes("1Gi")
	trimmedClaim(t, newTrimmer(), claim)
	a := claim.Annotations
	if a[wellknown.AnnotationStorageProvisioner] != wellknown.DefaultProvisioner || len(a["path"]) != wellknown.MaxPathBytes || len(a["note"]) <= wellknown.MaxPathBytes {
		t.Errorf("its provisioner is %q, its path has %d bytes, and its note %d", a[wellknown.AnnotationStorageProvisioner], len(a["path"]), len(a["note"]))
	}
	if s := claim.Spec.Selector; s.MatchLabels["a"] != "b" || len(s.MatchExpressions) != 1 {
		t.Errorf("its selector is %v", s)
	}
	if !slices.Equal(claim.Spec.AccessModes, modes()) || claim.Spec.Resources.Requests.Storage().String() != "1Gi" {
		t.Errorf("it has become %+v", claim.Spec)
	}
}
