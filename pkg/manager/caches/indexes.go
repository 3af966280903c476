package caches

import (
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Names of the indexes.
const (
	byUID         = "uid"
	byProvisioner = "provisioner"
	bySource      = "source"
	byClaim       = "claim"
	byFileSystem  = "fileSystem"
	byUnbound     = "unbound"
	byOperation   = "operation"
	byOwner       = "owner"
	byAgent       = "agent"
	byServer      = "server"
	byObject      = "object"
)

func index[T any](of func(T) []string) cache.IndexFunc {
	return func(object any) ([]string, error) { return of(as[T](object)), nil }
}

// valueIf returns the value of an index, none if it is "" or a condition does not hold.
func valueIf(holds bool, value string) []string {
	if !holds || value == "" {
		return nil
	}
	return []string{value}
}

func uidOf(claim *corev1.PersistentVolumeClaim) []string { return []string{string(claim.UID)} }

// provisionerOf returns the provisioner that the cluster has asked for a claim's volume, while it has none.
func provisionerOf(claim *corev1.PersistentVolumeClaim) []string {
	isPending := claim.Status.Phase == corev1.ClaimPending && claim.Spec.VolumeName == ""
	return valueIf(isPending, volumes.AskedProvisioner(claim))
}

// sourceOf returns the claim that a claim without a volume is to be a copy of.
func sourceOf(claim *corev1.PersistentVolumeClaim) []string {
	name := volumes.SourceName(claim)
	return valueIf(name != "" && claim.Spec.VolumeName == "", claim.Namespace+"/"+name)
}

// otherClaimsOf returns the uids of a volume's claims that are not in its name: adopted volumes have any
// name, and an administrator may have reserved a retained volume for another claim.
func otherClaimsOf(volume *corev1.PersistentVolume) []string {
	var found []string
	for _, uid := range volumes.ClaimsOf(volume) {
		if volume.Name != volumes.VolumeName(uid) {
			found = append(found, string(uid))
		}
	}
	return found
}

// DirectoryOf returns the file system and the path of a volume that has a directory of its own: neither a
// root volume nor one of a SharedVolume.
func DirectoryOf(volume *corev1.PersistentVolume) (fileSystemID, path string, ok bool) {
	_, shared := volume.Annotations[wellknown.AnnotationSharedVolume]
	id, nfs := volume.Annotations[wellknown.AnnotationFileSystemID], volume.Spec.NFS
	if shared || id == "" || nfs == nil || nfs.Server != wellknown.LoopbackAddress || volume.Spec.StorageClassName == wellknown.RootStorageClass {
		return "", "", false
	}
	if nfs.Path == "/" && volume.Annotations[wellknown.AnnotationAccessPointID] != "" {
		return id, volume.Annotations[wellknown.AnnotationPath], true // the root of an access point
	}
	return id, nfs.Path, true
}

// unsettledOn returns the file system of a volume that may need an operation: one that is not bound, or not
// adopted.
func unsettledOn(volume *corev1.PersistentVolume) []string {
	_, adopted := volume.Annotations[wellknown.AnnotationPath]
	id, _, _ := DirectoryOf(volume)
	return valueIf(!adopted || volume.Status.Phase != corev1.VolumeBound, id)
}

// unboundOf returns the provisioner of a volume that was made for a claim, while kube-controller-manager has not bound it.
func unboundOf(volume *corev1.PersistentVolume) []string {
	isUnbound := volume.Status.Phase == corev1.VolumePending && volume.Spec.ClaimRef != nil
	return valueIf(isUnbound, volume.Annotations[wellknown.AnnotationProvisionedBy])
}

func fileSystemOf(job *batchv1.Job) []string {
	name, ok := mountjobs.ParseName(job.Name)
	return valueIf(ok, name.FileSystemID)
}

// operationsOf returns the volumes and the paths that a Job works on, in one index: reading its operations takes
// milliseconds. Paths begin with a slash, and names of volumes cannot.
func operationsOf(job *batchv1.Job) []string {
	if _, ok := job.Annotations[wellknown.AnnotationOperations]; !ok {
		return nil
	}
	ops, _ := mountjobs.Operations(job, nil) // the jobs loop reports the error
	values := make([]string, 0, 2*len(ops))
	for _, o := range ops {
		values = append(values, o.Volume, o.Path)
	}
	return values
}

func ownerOf(pod *corev1.Pod) []string {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		return []string{string(owner.UID)}
	}
	return nil
}

// agentOf returns one value for all agents.
func agentOf(pod *corev1.Pod) []string {
	for key, value := range mountjobs.AgentLabels() {
		if pod.Labels[key] != value {
			return nil
		}
	}
	return []string{byAgent}
}

func serverOf(pod *corev1.Pod) []string {
	if id := pod.Labels[wellknown.LabelServer]; id != "" {
		return []string{id}
	}
	return nil
}

func objectOf(event *corev1.Event) []string { return []string{string(event.InvolvedObject.UID)} }

// Claim returns the claim with a uid, nil if there is none.
func (c *Caches) Claim(uid types.UID) *corev1.PersistentVolumeClaim {
	if found := list[*corev1.PersistentVolumeClaim](c.Claims, byUID, string(uid)); len(found) > 0 {
		return found[0]
	}
	return nil
}

// ClaimNamed returns the claim with a name, nil if there is none.
func (c *Caches) ClaimNamed(namespace, name string) *corev1.PersistentVolumeClaim {
	return get[*corev1.PersistentVolumeClaim](c.Claims, namespace+"/"+name)
}

// UnboundClaims returns the pending claims whose volume the cluster has asked a provisioner for.
func (c *Caches) UnboundClaims(provisioner string) []*corev1.PersistentVolumeClaim {
	return list[*corev1.PersistentVolumeClaim](c.Claims, byProvisioner, provisioner)
}

// CopiesOf returns the claims without a volume that are to be copies of a claim.
func (c *Caches) CopiesOf(claim *corev1.PersistentVolumeClaim) []*corev1.PersistentVolumeClaim {
	return list[*corev1.PersistentVolumeClaim](c.Claims, bySource, claim.Namespace+"/"+claim.Name)
}

// Volume returns the volume with a name, nil if there is none.
func (c *Caches) Volume(name string) *corev1.PersistentVolume {
	return get[*corev1.PersistentVolume](c.Volumes, name)
}

// VolumesOfClaim returns the volumes that have a claim's uid in their name or their claimRef.
func (c *Caches) VolumesOfClaim(uid types.UID) []*corev1.PersistentVolume {
	found := list[*corev1.PersistentVolume](c.Volumes, byClaim, string(uid))
	if named := c.Volume(volumes.VolumeName(uid)); named != nil {
		found = append(found, named)
	}
	return found
}

// UnsettledVolumes returns the volumes on a file system that may need an operation.
func (c *Caches) UnsettledVolumes(fileSystemID string) []*corev1.PersistentVolume {
	return list[*corev1.PersistentVolume](c.Volumes, byFileSystem, fileSystemID)
}

// UnboundVolumes returns the volumes of a provisioner that kube-controller-manager has not bound.
func (c *Caches) UnboundVolumes(provisioner string) []*corev1.PersistentVolume {
	return list[*corev1.PersistentVolume](c.Volumes, byUnbound, provisioner)
}

// VolumesOnFileSystem returns all volumes on a file system. It scans all volumes of the cluster.
func (c *Caches) VolumesOnFileSystem(id string) (found []*corev1.PersistentVolume) {
	for _, volume := range All[*corev1.PersistentVolume](c.Volumes) {
		if on, _, ok := DirectoryOf(volume); ok && on == id {
			found = append(found, volume)
		}
	}
	return found
}

// FileSystems returns the ids of the file systems that have Jobs, unsettled volumes or root claims.
func (c *Caches) FileSystems() []string {
	found := append(c.Jobs.GetIndexer().ListIndexFuncValues(byFileSystem), c.Volumes.GetIndexer().ListIndexFuncValues(byFileSystem)...)
	for _, key := range c.Claims.GetStore().ListKeys() {
		if id, ok := strings.CutPrefix(key, c.namespace+"/"+wellknown.RootVolumePrefix); ok {
			found = append(found, id)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// Class returns the storage class with a name, nil if there is none.
func (c *Caches) Class(name string) *storagev1.StorageClass {
	return get[*storagev1.StorageClass](c.Classes, name)
}

// Node returns the node with a name, nil if there is none.
func (c *Caches) Node(name string) *corev1.Node { return get[*corev1.Node](c.Nodes, name) }

// JobNamed returns the Job with a name, nil if there is none.
func (c *Caches) JobNamed(namespace, name string) *batchv1.Job {
	return get[*batchv1.Job](c.Jobs, namespace+"/"+name)
}

// JobsOfFileSystem returns the Jobs that are named for a file system, also foreign ones.
func (c *Caches) JobsOfFileSystem(id string) []*batchv1.Job {
	return list[*batchv1.Job](c.Jobs, byFileSystem, id)
}

// JobsOfVolume returns the Jobs with an operation for a volume.
func (c *Caches) JobsOfVolume(name string) []*batchv1.Job {
	return list[*batchv1.Job](c.Jobs, byOperation, name)
}

// JobsAt returns the Jobs with an operation on a path.
func (c *Caches) JobsAt(path string) []*batchv1.Job {
	return list[*batchv1.Job](c.Jobs, byOperation, path)
}

// PodNamed returns the pod with a name, nil if there is none.
func (c *Caches) PodNamed(namespace, name string) *corev1.Pod {
	return get[*corev1.Pod](c.Pods, namespace+"/"+name)
}

// PodsOfJob returns the pods that a Job controls.
func (c *Caches) PodsOfJob(job *batchv1.Job) []*corev1.Pod {
	return list[*corev1.Pod](c.Pods, byOwner, string(job.UID))
}

// Agents returns the node agents' pods.
func (c *Caches) Agents() []*corev1.Pod { return list[*corev1.Pod](c.Pods, byAgent, byAgent) }

// ServerPods returns the pods of the NFS server that serves a target.
func (c *Caches) ServerPods(id string) []*corev1.Pod { return list[*corev1.Pod](c.Pods, byServer, id) }

// TargetsConfigMap returns the ConfigMap with the table of targets; nil if there is none.
func (c *Caches) TargetsConfigMap() *corev1.ConfigMap {
	return get[*corev1.ConfigMap](c.Table, c.namespace+"/"+wellknown.TargetsConfigMap)
}

// PinnedConfigMap returns the ConfigMap with the administrator's table; nil if there is none.
func (c *Caches) PinnedConfigMap() *corev1.ConfigMap {
	return get[*corev1.ConfigMap](c.Pinned, c.namespace+"/"+wellknown.PinnedConfigMap)
}

// WarningsAbout returns the Warning events about an object.
func (c *Caches) WarningsAbout(uid types.UID) (events []corev1.Event) {
	for _, event := range list[*corev1.Event](c.Warnings, byObject, string(uid)) {
		events = append(events, *event)
	}
	return events
}

// All returns the objects of a cache, in no order.
func All[T any](informer cache.SharedIndexInformer) []T { return typed[T](informer.GetStore().List()) }

func list[T any](informer cache.SharedIndexInformer, index, value string) []T {
	objects, err := informer.GetIndexer().ByIndex(index, value)
	if err != nil {
		panic(fmt.Sprintf("caches: %v", err)) // there is no such index
	}
	return typed[T](objects)
}

func typed[T any](objects []any) []T {
	all := make([]T, 0, len(objects))
	for _, object := range objects {
		all = append(all, as[T](object))
	}
	return all
}

func get[T any](informer cache.SharedIndexInformer, key string) (object T) {
	found, exists, err := informer.GetIndexer().GetByKey(key)
	if err != nil || !exists {
		return object
	}
	return as[T](found)
}

func as[T any](object any) T {
	typed, ok := object.(T)
	if !ok {
		panic(fmt.Sprintf("caches: %T in the cache of another kind", object))
	}
	return typed
}

// found returns what get finds of the names, by name. get returns nil for an object that is not in the cache.
func found[K comparable, T any](names []K, get func(K) *T) map[K]*T {
	all := make(map[K]*T, len(names))
	for _, name := range names {
		if object := get(name); object != nil {
			all[name] = object
		}
	}
	return all
}
