package caches

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unique"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// trimmer drops the fields that no loop reads, and shares equal values between objects, which saves most
// of the memory of ten thousand volumes. Objects of the caches are never changed.
type trimmer struct {
	mu    sync.Mutex
	known map[string]any // guarded by mu; by type and text: labels, annotations, resources, mount options
}

func newTrimmer() *trimmer { return &trimmer{known: map[string]any{}} }

func (t *trimmer) trim(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	switch o := object.(type) {
	case *corev1.PersistentVolumeClaim:
		t.trimClaim(o)
	case *corev1.PersistentVolume:
		t.trimVolume(o)
	case *corev1.Node:
		o.Status, o.Annotations = corev1.NodeStatus{}, nil
	case *corev1.Pod:
		trimPodSpec(&o.Spec)
		o.Annotations = nil
	case *batchv1.Job:
		trimJob(o)
	case *unstructured.Unstructured: // a SharedVolume
		o.SetLabels(nil)
		o.SetAnnotations(nil)
	}
	return object, nil
}

// trimJob also drops the operations of Jobs that have done all of them and whose outcome was used: there can be
// hundreds of these Jobs, each with up to 64 KiB of operations. What was not done is tried again after a wait, which
// grows with the attempts.
func trimJob(job *batchv1.Job) {
	trimPodSpec(&job.Spec.Template.Spec)
	unsuccessful := job.Annotations[wellknown.AnnotationUnsuccessful] != ""
	if job.Status.Succeeded > 0 && !unsuccessful && !mountjobs.IsUnreleased(job) {
		maps.DeleteFunc(job.Annotations, func(key, _ string) bool {
			_, isBatch := wellknown.ParseAnnotationBatch(key)
			return isBatch || key == wellknown.AnnotationOperations
		})
		delete(job.Spec.Template.Annotations, wellknown.AnnotationOperations)
	}
}

func trimPodSpec(spec *corev1.PodSpec) {
	for i := range spec.Containers {
		c := &spec.Containers[i]
		c.Env, c.VolumeMounts, c.LivenessProbe, c.ReadinessProbe, c.StartupProbe, c.SecurityContext = nil, nil, nil, nil, nil, nil
	}
	spec.InitContainers, spec.Tolerations = nil, nil
}

// trimClaim shares values that are the same in many claims: decoding copies every string and map, and a
// map with one entry takes as much memory as one with eight. What a claim's directory holds is in no other
// claim: it moves to a field that apiservers no longer set, see UsageOf. It also drops kubectl's annotation, a copy
// of the whole claim, which stays in the apiserver, because claims are patched, never updated.
func (t *trimmer) trimClaim(claim *corev1.PersistentVolumeClaim) {
	if _, ok := claim.Annotations[corev1.LastAppliedConfigAnnotation]; ok { //nolint:staticcheck // the map may be a shared one, which others read meanwhile
		delete(claim.Annotations, corev1.LastAppliedConfigAnnotation)
	}
	if usage, ok := claim.Annotations[wellknown.AnnotationUsage]; ok {
		delete(claim.Annotations, wellknown.AnnotationUsage)
		claim.SelfLink = usage //nolint:staticcheck // apiservers no longer set it, so it is free
	}
	shrink(claim)
	t.shareMeta(&claim.ObjectMeta)
	shareAll(claim.Spec.AccessModes)
	shareAll(claim.Status.AccessModes)
	if claim.Spec.StorageClassName != nil {
		*claim.Spec.StorageClassName = shared(*claim.Spec.StorageClassName)
	}
	claim.Spec.Resources.Requests = t.sharedList(claim.Spec.Resources.Requests)
	claim.Status.Capacity = t.sharedList(claim.Status.Capacity)
}

// UsageOf returns the value of wellknown.AnnotationUsage of a claim of the caches, "" without one.
func UsageOf(claim *corev1.PersistentVolumeClaim) string { return claim.SelfLink } //nolint:staticcheck // see trimClaim

// trimVolume does for volumes what trimClaim does for claims. Foreign volumes keep little more than their claimRef.
func (t *trimmer) trimVolume(volume *corev1.PersistentVolume) {
	if isForeign(volume) {
		volume.Labels, volume.Annotations = nil, nil
		volume.Spec.PersistentVolumeSource, volume.Spec.NodeAffinity = corev1.PersistentVolumeSource{}, nil
	}
	t.shareMeta(&volume.ObjectMeta)
	shareAll(volume.Spec.AccessModes)
	volume.Spec.MountOptions = t.sharedOptions(volume.Spec.MountOptions)
	volume.Spec.StorageClassName = shared(volume.Spec.StorageClassName)
	volume.Spec.Capacity = t.sharedList(volume.Spec.Capacity)
	if ref := volume.Spec.ClaimRef; ref != nil {
		ref.Kind, ref.APIVersion, ref.Namespace = shared(ref.Kind), shared(ref.APIVersion), shared(ref.Namespace)
	}
	if nfs := volume.Spec.NFS; nfs != nil {
		nfs.Server = shared(nfs.Server)
		if path, ok := volume.Annotations[wellknown.AnnotationPath]; ok && path == nfs.Path {
			volume.Annotations[wellknown.AnnotationPath] = nfs.Path
		}
	}
}

// isForeign reports whether a volume is not NFS, and has no annotation, class or name of our volumes.
func isForeign(volume *corev1.PersistentVolume) bool {
	for _, annotation := range []string{wellknown.AnnotationFileSystemID, wellknown.AnnotationSharedVolume, wellknown.AnnotationPath} {
		if _, ok := volume.Annotations[annotation]; ok {
			return false
		}
	}
	return volume.Spec.NFS == nil && volume.Spec.StorageClassName != wellknown.RootStorageClass &&
		!strings.HasPrefix(volume.Name, wellknown.RootVolumePrefix) && !strings.HasPrefix(volume.Name, wellknown.SharedVolumePrefix)
}

func (t *trimmer) shareMeta(meta *metav1.ObjectMeta) {
	meta.Namespace = shared(meta.Namespace)
	meta.Labels, meta.Annotations = t.sharedMap(meta.Labels), t.sharedMap(meta.Annotations)
	shareAll(meta.Finalizers)
}

// sharedMap does not share maps with a path, which no other object has.
func (t *trimmer) sharedMap(all map[string]string) map[string]string {
	if len(all) == 0 {
		return nil
	}
	again := make(map[string]string, len(all))
	for name, value := range all {
		again[shared(name)] = shared(value)
	}
	if _, ok := all[wellknown.AnnotationPath]; ok {
		return again
	}
	return remembered(t, fmt.Sprintf("%q", again), again)
}

func (t *trimmer) sharedList(list corev1.ResourceList) corev1.ResourceList {
	if len(list) == 0 {
		return list
	}
	text, err := json.Marshal(list)
	if err != nil {
		return list
	}
	return remembered(t, string(text), maps.Clone(list))
}

func (t *trimmer) sharedOptions(options []string) []string {
	if len(options) == 0 {
		return options
	}
	again := slices.Clone(options) // these may be shared already
	shareAll(again)
	return remembered(t, fmt.Sprintf("%q", again), again)
}

// Bounds of the values that are remembered for later objects. Objects keep theirs.
const (
	maxRemembered = 1024
	maxKeyBytes   = 512 // values with a longer text are rarely equal
)

// remembered returns the value of the same type and text that it was first called with. The text is quoted and its
// keys are sorted: values may contain any byte, and other values must not have the same text.
func remembered[T any](t *trimmer, text string, value T) T {
	key := fmt.Sprintf("%T %s", value, text)
	if len(key) > maxKeyBytes {
		return value
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if first, ok := t.known[key].(T); ok {
		return first
	}
	if len(t.known) >= maxRemembered {
		clear(t.known)
	}
	t.known[key] = value
	return value
}

func shareAll[T ~string](all []T) {
	for i, text := range all {
		all[i] = T(shared(string(text)))
	}
}

// maxShared is the length in bytes above which equal strings are rare.
const maxShared = 64

func shared(text string) string {
	if len(text) > maxShared {
		return text
	}
	return unique.Make(text).Value()
}

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
