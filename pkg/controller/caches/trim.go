package caches

import (
	"slices"
	"unique"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// trim drops what no loop reads; with ten thousand volumes, most of the memory.
func trim(object any) (any, error) {
	accessor, ok := object.(metav1.ObjectMetaAccessor)
	if !ok {
		return object, nil
	}
	accessor.GetObjectMeta().SetManagedFields(nil)
	switch o := object.(type) {
	case *corev1.PersistentVolumeClaim:
		shareClaim(o)
	case *corev1.PersistentVolume:
		shareVolume(o)
	case *corev1.Node:
		o.Status, o.Annotations = corev1.NodeStatus{}, nil
	case *corev1.Pod:
		trimPod(o)
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

// trimPod leaves what Jobs' pods and node agents are looked at for.
func trimPod(pod *corev1.Pod) {
	trimPodSpec(&pod.Spec)
	pod.Annotations = nil
}

func trimPodSpec(spec *corev1.PodSpec) {
	for i := range spec.Containers {
		c := &spec.Containers[i]
		c.Env, c.VolumeMounts, c.LivenessProbe, c.ReadinessProbe, c.StartupProbe, c.SecurityContext = nil, nil, nil, nil, nil, nil
	}
	spec.InitContainers, spec.Tolerations = nil, nil
}

// shareClaim keeps once what is the same in all claims, or twice in this one. Decoding makes a
// copy of every word; with ten thousand volumes those are a third of the memory.
func shareClaim(claim *corev1.PersistentVolumeClaim) {
	shareMeta(&claim.ObjectMeta)
	shareAll(claim.Spec.AccessModes)
	shareAll(claim.Status.AccessModes)
	if claim.Spec.StorageClassName != nil {
		*claim.Spec.StorageClassName = shared(*claim.Spec.StorageClassName)
	}
	if equality.Semantic.DeepEqual(claim.Spec.Resources.Requests, claim.Status.Capacity) {
		claim.Status.Capacity = claim.Spec.Resources.Requests
	}
}

// shareVolume is shareClaim for volumes.
func shareVolume(volume *corev1.PersistentVolume) {
	shareMeta(&volume.ObjectMeta)
	shareAll(volume.Spec.AccessModes)
	shareAll(volume.Spec.MountOptions)
	volume.Spec.StorageClassName = shared(volume.Spec.StorageClassName)
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

func shareMeta(meta *metav1.ObjectMeta) {
	meta.Namespace = shared(meta.Namespace)
	meta.Labels, meta.Annotations = shareMap(meta.Labels), shareMap(meta.Annotations)
	shareAll(meta.Finalizers)
}

func shareMap(all map[string]string) map[string]string {
	if len(all) == 0 {
		return nil
	}
	again := make(map[string]string, len(all))
	for key, value := range all {
		again[shared(key)] = shared(value)
	}
	return again
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
