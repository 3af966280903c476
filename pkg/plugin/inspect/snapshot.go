// Package inspect says what state an installation is in, and what is wrong with it, in three steps, which begin
// the names of the files.
//
//	Gather --Snapshot--> one pure function for each subject --Results--> NewStatus, Examine --> Write
//
// A verdict of the manager or of an agent is a condition of an object, and is only repeated. Derived from objects is
// what no program can say: that one does not run, and what belongs to others.
package inspect

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/plugin/reading"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Snapshot has the objects of an installation. An object that does not exist is nil; so is one that could
// not be read, which Unread says.
type Snapshot struct {
	Namespace   string // of the installation
	Provisioner string
	Now         time.Time // the apiserver's

	Manager       *appsv1.Deployment
	Agents        *appsv1.DaemonSet
	Lease         *coordinationv1.Lease
	Table         *corev1.ConfigMap
	Pinned        *corev1.ConfigMap
	Jobs          []*batchv1.Job
	Pods          []*corev1.Pod // of the installation's namespace
	Users         []*corev1.Pod // of the namespace of the claim that was asked about
	Claims        []*corev1.PersistentVolumeClaim
	SharedVolumes []*v1alpha1.SharedVolume
	Volumes       []*corev1.PersistentVolume
	Classes       []*storagev1.StorageClass
	Nodes         []*corev1.Node
	Events        []corev1.Event

	// What manager and agents say is wrong.
	FileSystemObjects []*v1alpha1.FileSystem
	NodeTunnels       []*v1alpha1.NodeTunnels
	Installation      *v1alpha1.Installation
	Conditions        []*unstructured.Unstructured // all of these objects, as they are
	Undefined         bool                         // the cluster does not have their definitions

	Unread []Unread
}

// Resources that several checks need.
const (
	claimResource  = "persistentvolumeclaims"
	volumeResource = "persistentvolumes"
	classResource  = "storageclasses.storage.k8s.io"
	// sharedResource has no objects where the definition is not installed.
	sharedResource = v1alpha1.SharedVolumeResource + "." + v1alpha1.GroupName
	// tunnelResource has the objects that say how tunnels are.
	tunnelResource = v1alpha1.NodeTunnelsResource + "." + v1alpha1.GroupName
)

// Unread names what the user has no right to read.
type Unread = reading.Unread

// Incomplete returns that a check of an object lacks a right.
func Incomplete(u Unread, object string) Result {
	return Result{
		Level: Unknown, Cause: RightMissing, Object: object, Message: "you have no right to " + u.String(),
		Remedy: "let an administrator run this, or grant the right", unread: true,
	}
}

// lacks reports whether some objects of a resource could not be read.
func lacks(unread []Unread, resource string) bool {
	return slices.ContainsFunc(unread, func(u Unread) bool { return u.Resource == resource })
}

func (s *Snapshot) lacks(resource string) bool { return lacks(s.Unread, resource) }

// keep returns the items for which a condition is true.
func keep[T any](all []T, is func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(item T) bool { return !is(item) })
}

// first returns the item for which a condition is true, the zero value if there is none.
func first[T any](all []T, is func(T) bool) (found T) {
	if i := slices.IndexFunc(all, is); i >= 0 {
		return all[i]
	}
	return found
}

// PodsByPart returns the installation's pods: of the manager and of NFS servers, of mount Jobs and sweeps, and of node agents.
func (s *Snapshot) PodsByPart() (managers, workers, agents []*corev1.Pod) {
	jobs := map[types.UID]bool{}
	for _, job := range s.OurJobs() {
		jobs[job.UID] = true
	}
	for _, pod := range s.Pods {
		owner := metav1.GetControllerOf(pod)
		switch {
		case isAgent(pod):
			agents = append(agents, pod)
		case owner != nil && jobs[owner.UID]:
			workers = append(workers, pod)
		case pod.Labels[wellknown.LabelProgram] == wellknown.ProgramManager, pod.Labels[wellknown.LabelServer] != "":
			managers = append(managers, pod)
		}
	}
	return managers, workers, agents
}

// OurJobs returns mount Jobs and sweep Jobs.
func (s *Snapshot) OurJobs() []*batchv1.Job {
	return keep(s.Jobs, func(job *batchv1.Job) bool {
		_, err := mountjobs.Identify(job)
		return err == nil
	})
}

// OurClaims returns those of the provisioner, of SharedVolumes and of roots. Those that are not bound come first.
func (s *Snapshot) OurClaims() []*corev1.PersistentVolumeClaim {
	f := derive(s)
	isBound := func(claim *corev1.PersistentVolumeClaim) bool { return claim.Status.Phase == corev1.ClaimBound }
	ours := keep(s.Claims, func(claim *corev1.PersistentVolumeClaim) bool {
		_, shared := claim.Annotations[wellknown.AnnotationSharedVolume]
		return shared || f.isClaimOurs(claim) || f.isRoot(claim)
	})
	return slices.Concat(slices.DeleteFunc(slices.Clone(ours), isBound), keep(ours, isBound))
}

// OurVolumes returns those of OurClaims, and those that were released. Those that are not bound come first.
func (s *Snapshot) OurVolumes() []*corev1.PersistentVolume {
	isBound := func(volume *corev1.PersistentVolume) bool { return volume.Status.Phase == corev1.VolumeBound }
	ours := keep(s.Volumes, func(volume *corev1.PersistentVolume) bool {
		_, shared := volume.Annotations[wellknown.AnnotationSharedVolume]
		return shared || volumes.Read(volume, s.Provisioner).Kind != volumes.Foreign
	})
	return slices.Concat(slices.DeleteFunc(slices.Clone(ours), isBound), keep(ours, isBound))
}

// OurClasses returns those of the provisioner.
func (s *Snapshot) OurClasses() []*storagev1.StorageClass {
	return keep(s.Classes, func(class *storagev1.StorageClass) bool { return class.Provisioner == s.Provisioner })
}

// OurEvents returns those that manager and agents wrote, and those about the objects above, nodes and the
// installation's namespace. The newest come first.
func (s *Snapshot) OurEvents() []*corev1.Event {
	about := map[eventKey]bool{}
	for _, claim := range s.OurClaims() {
		about[eventKey{"PersistentVolumeClaim", claim.Namespace, claim.Name}] = true
	}
	for _, volume := range s.OurVolumes() {
		about[eventKey{"PersistentVolume", "", volume.Name}] = true
	}
	var all []*corev1.Event
	for i, event := range s.Events {
		object := event.InvolvedObject
		if IsOurs(event) || object.Namespace == s.Namespace || object.Kind == "Node" || about[keyOf(event)] {
			all = append(all, &s.Events[i])
		}
	}
	slices.SortStableFunc(all, func(a, b *corev1.Event) int { return mountjobs.LastSeen(*b).Compare(mountjobs.LastSeen(*a)) })
	return all
}

// eventKey has no uid: events about a Node have its name instead.
type eventKey struct{ kind, namespace, name string }

func keyOf(event corev1.Event) eventKey {
	about := event.InvolvedObject
	return eventKey{about.Kind, about.Namespace, about.Name}
}

// eventComponent is the source of the events of manager and agents.
const eventComponent = "efs-stunnel"

// IsOurs reports whether the manager or an agent wrote an event.
func IsOurs(event corev1.Event) bool {
	return cmp.Or(event.Source.Component, event.ReportingController) == eventComponent
}

// Targets returns what the table has. The error says why it cannot be read.
func (s *Snapshot) Targets() (map[string]ports.Target, error) {
	switch {
	case s.lacks("configmaps"):
		return nil, fmt.Errorf("you have no right to read ConfigMap %s in namespace %s", wellknown.TargetsConfigMap, s.Namespace)
	case s.Table == nil:
		return nil, fmt.Errorf("there is no ConfigMap %s in namespace %s: name the installation's with --system-namespace", wellknown.TargetsConfigMap, s.Namespace)
	}
	table, _, err := ports.DecodeLenient([]byte(s.Table.Data[wellknown.TargetsKey]))
	if err != nil {
		return nil, fmt.Errorf("reading ConfigMap %s: %w", wellknown.TargetsConfigMap, err)
	}
	return table.Targets, nil
}

// JobSettings returns those that the manager has for its Jobs. An image that is not "" replaces the manager's.
func (s *Snapshot) JobSettings(image string) (mountjobs.Settings, error) {
	image = cmp.Or(image, setting(s.Manager, "--worker-image", "WORKER_IMAGE"))
	settings := mountjobs.Settings{Namespace: s.Namespace, Image: image}
	if settings.Image == "" {
		return settings, errors.New("the image of mount Jobs is not in the manager's Deployment, or you have no right to read it: name it with --worker-image")
	}
	settings.ImagePullPolicy = corev1.PullPolicy(setting(s.Manager, "--worker-image-pull-policy", ""))
	if names := setting(s.Manager, "--worker-image-pull-secrets", ""); names != "" {
		settings.ImagePullSecrets = strings.Split(names, ",")
	}
	var errs [2]error
	settings.Tolerations, errs[0] = mountjobs.ParseTolerations(setting(s.Manager, "--worker-tolerations", ""))
	settings.NodeSelector, errs[1] = mountjobs.ParseNodeSelector(setting(s.Manager, "--worker-node-selector", ""))
	if err := errors.Join(errs[:]...); err != nil {
		return settings, fmt.Errorf("reading the settings of the manager's Deployment: %w", err)
	}
	if timeout, err := time.ParseDuration(setting(s.Manager, "--mount-job-timeout", "")); err == nil {
		settings.Timeout = timeout
	}
	return settings, nil
}

// Aliases returns the ids that a file system may carry as a copy of another.
func (s *Snapshot) Aliases(fileSystem string) (old []string) {
	for item := range strings.SplitSeq(setting(s.Manager, "--file-system-aliases", ""), ",") {
		if fresh, id, _ := strings.Cut(strings.TrimSpace(item), "="); fresh == fileSystem {
			old = append(old, id)
		}
	}
	return old
}
