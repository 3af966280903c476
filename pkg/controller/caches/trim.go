package caches

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"unique"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// trimmer drops what no loop reads, and keeps once what many objects have; with ten thousand
// volumes, most of the memory. Objects of the caches are never changed, so they can share maps.
type trimmer struct {
	mu    sync.Mutex
	texts map[string]map[string]string   // guarded by mu; labels and annotations
	lists map[string]corev1.ResourceList // guarded by mu
	words map[string][]string            // guarded by mu; mount options
}

func newTrimmer() *trimmer {
	return &trimmer{texts: map[string]map[string]string{}, lists: map[string]corev1.ResourceList{}, words: map[string][]string{}}
}

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
	}
	return object, nil
}

// trimJob also drops the operations of what is done and used: a busy hour leaves hundreds of
// such Jobs, with up to 64 KiB of them each.
func trimJob(job *batchv1.Job) {
	trimPodSpec(&job.Spec.Template.Spec)
	if job.Status.Succeeded > 0 && !slices.Contains(job.Finalizers, wellknown.FinalizerOutcome) {
		delete(job.Annotations, wellknown.AnnotationOperations)
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

// trimClaim keeps once what is the same in many claims. Decoding makes a copy of every word and of
// every map, and a map of one size takes as much as eight. Claims are patched, never updated, so
// kubectl's annotation, a copy of the whole claim, is not lost by that.
func (t *trimmer) trimClaim(claim *corev1.PersistentVolumeClaim) {
	if _, ok := claim.Annotations[corev1.LastAppliedConfigAnnotation]; ok { //nolint:staticcheck // the map may be a shared one, which others read meanwhile
		delete(claim.Annotations, corev1.LastAppliedConfigAnnotation)
	}
	t.shareMeta(&claim.ObjectMeta)
	shareAll(claim.Spec.AccessModes)
	shareAll(claim.Status.AccessModes)
	if claim.Spec.StorageClassName != nil {
		*claim.Spec.StorageClassName = shared(*claim.Spec.StorageClassName)
	}
	claim.Spec.Resources.Requests = t.sharedList(claim.Spec.Resources.Requests)
	claim.Status.Capacity = t.sharedList(claim.Status.Capacity)
}

// trimVolume is trimClaim for volumes. Of volumes that cannot be taken for ours, it is only known
// which claim has them.
func (t *trimmer) trimVolume(volume *corev1.PersistentVolume) {
	if isForeign(volume) {
		volume.Labels, volume.Annotations = nil, nil
		volume.Spec.PersistentVolumeSource, volume.Spec.NodeAffinity = corev1.PersistentVolumeSource{}, nil
	}
	t.shareMeta(&volume.ObjectMeta)
	shareAll(volume.Spec.AccessModes)
	volume.Spec.MountOptions = t.sharedWords(volume.Spec.MountOptions)
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

// isForeign says that a volume is neither NFS nor has an annotation or a class by which it could be
// ours, or in the place of one of ours.
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

// sharedMap does not share maps with a path in them, which no other object has.
func (t *trimmer) sharedMap(all map[string]string) map[string]string {
	if len(all) == 0 {
		return nil
	}
	again := make(map[string]string, len(all))
	var key strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		again[shared(name)] = shared(all[name])
		key.WriteString(name + "\x00" + all[name] + "\x00")
	}
	if _, ok := all[wellknown.AnnotationPath]; ok {
		return again
	}
	return remembered(&t.mu, t.texts, key.String(), again)
}

func (t *trimmer) sharedList(list corev1.ResourceList) corev1.ResourceList {
	if len(list) == 0 {
		return list
	}
	again := make(corev1.ResourceList, len(list))
	var key strings.Builder
	for _, name := range slices.Sorted(maps.Keys(list)) {
		quantity := list[name]
		key.WriteString(string(name) + "\x00" + quantity.String() + "\x00")
		again[name] = quantity
	}
	return remembered(&t.mu, t.lists, key.String(), again)
}

func (t *trimmer) sharedWords(words []string) []string {
	if len(words) == 0 {
		return words
	}
	again := slices.Clone(words) // these may be shared already
	shareAll(again)
	return remembered(&t.mu, t.words, strings.Join(words, "\x00"), again)
}

// maxRemembered bounds what is remembered for objects to come, which is none of what they keep.
const maxRemembered = 1024

// remembered is what was there first of what has a key.
func remembered[T any](mu *sync.Mutex, known map[string]T, key string, value T) T {
	mu.Lock()
	defer mu.Unlock()
	if first, ok := known[key]; ok {
		return first
	}
	if len(known) >= maxRemembered {
		clear(known)
	}
	known[key] = value
	return value
}

func shareAll[T ~string](all []T) {
	for i, text := range all {
		all[i] = T(shared(string(text)))
	}
}

// maxShared leaves out texts that hardly ever are the same.
const maxShared = 64

func shared(text string) string {
	if len(text) > maxShared {
		return text
	}
	return unique.Make(text).Value()
}
