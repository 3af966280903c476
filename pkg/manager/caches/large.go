package caches

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

const (
	// maxClaimBytes bounds the labels, the annotations and the selector that the caches keep of a claim, each.
	// A claim can have more than a megabyte of them, and a namespace any number of claims. The labels of a
	// selector that is cut are still more than one operation may have, so the claim is refused all the same.
	maxClaimBytes = 16 << 10
	// maxTextBytes is the length of a value that is cut: a path with it is refused all the same.
	maxTextBytes = wellknown.MaxPathBytes + 1
)

// shrink cuts what no loop can use off a claim that is larger than claims are.
func shrink(claim *corev1.PersistentVolumeClaim) {
	if claim.Size() <= maxClaimBytes {
		return
	}
	claim.OwnerReferences, claim.Finalizers = nil, nil
	claim.Labels, claim.Annotations = shortest(claim.Labels), shortest(claim.Annotations)
	claim.SelfLink = cut(claim.SelfLink) //nolint:staticcheck // see UsageOf
	shrinkSpec(&claim.Spec)
}

func shrinkSpec(spec *corev1.PersistentVolumeClaimSpec) {
	spec.VolumeName = cut(spec.VolumeName)
	if s := spec.Selector; s != nil {
		s.MatchLabels = shortest(s.MatchLabels)
		if len(s.MatchExpressions) > 0 {
			s.MatchExpressions = []metav1.LabelSelectorRequirement{{}} // loops only ask whether there is one
		}
	}
	if source := spec.DataSource; source != nil {
		source.Kind, source.Name = cut(source.Kind), cut(source.Name)
	}
	if source := spec.DataSourceRef; source != nil {
		source.Kind, source.Name = cut(source.Kind), cut(source.Name)
	}
	slices.Sort(spec.AccessModes)
	spec.AccessModes = slices.Clone(slices.Compact(spec.AccessModes))
	spec.Resources.Limits = nil
	spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: *spec.Resources.Requests.Storage()}
}

// shortest keeps the entries with the shortest values, until they exceed maxClaimBytes.
func shortest(all map[string]string) map[string]string {
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(all[a]), len(all[b])), cmp.Compare(a, b))
	})
	kept, size := map[string]string{}, 0
	for _, name := range names {
		if size > maxClaimBytes {
			break
		}
		kept[name] = cut(all[name])
		size += len(name) + len(kept[name])
	}
	return kept
}

// cut copies, because a part of a string keeps the whole in memory.
func cut(text string) string {
	if len(text) <= maxTextBytes {
		return text
	}
	return string([]byte(text[:maxTextBytes]))
}
