// Package inspect says what state an installation is in, and what is wrong with it. Gather reads the
// objects; all conclusions depend on its Snapshot only.
//
//	Gather --Snapshot--> NewStatus, Examine --Status, Diagnosis--> Write
package inspect

import (
	"cmp"
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

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Snapshot is the objects of an installation. An object that does not exist is nil; so is one that could
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

// Unread is what the user has no right to read.
type Unread struct {
	Verb      string `json:"verb"`
	Resource  string `json:"resource"`            // with its API group: deployments.apps
	Namespace string `json:"namespace,omitempty"` // "" for all
	Name      string `json:"name,omitempty"`
}

func (u Unread) String() string {
	text := u.Verb + " " + u.Resource
	if u.Name != "" {
		text += " " + u.Name
	}
	if u.Namespace == "" {
		return text + " in all namespaces"
	}
	return text + " in namespace " + u.Namespace
}

// Result says that a check of an object is incomplete.
func (u Unread) Result(object string) Result {
	return Result{
		Level: Unknown, Cause: RightMissing, Object: object, Message: "you have no right to " + u.String(),
		Remedy: "let an administrator run this, or grant the right", unread: true,
	}
}

// lacks says whether some objects of a resource could not be read.
func (s *Snapshot) lacks(resource string) bool {
	return slices.ContainsFunc(s.Unread, func(u Unread) bool { return u.Resource == resource })
}

// facts are a snapshot with what follows from single objects of it.
type facts struct {
	*Snapshot
	table    ports.Table
	tableErr error                  // why the table, or a part of it, cannot be read
	invalid  map[string]error       // targets that cannot be read
	classes  map[string]storedClass // ours, by name
	jobs     []jobFacts             // ours, the newest first
	attempts map[string]position    // the newest operation for each volume
	claims   map[types.NamespacedName]*corev1.PersistentVolumeClaim
	volumes  map[string]volumes.Volume   // by name
	events   map[eventKey][]corev1.Event // the newest first
	tunnels  map[string]*v1alpha1.NodeTunnels
	shown    map[string]*v1alpha1.FileSystem // by id
}

type storedClass struct {
	object *storagev1.StorageClass
	class  volumes.Class
	err    error // why claims of it are refused
}

// position is that of an operation among those of all Jobs.
type position struct{ job, operation int }

// eventKey has no uid: events about a Node have its name instead.
type eventKey struct{ kind, namespace, name string }

// jobFacts is a mount Job or a sweep Job, and what became of it.
type jobFacts struct {
	job     *batchv1.Job
	status  mountjobs.Status
	outcome mountjobs.Outcome // of a mount Job
	err     error             // its operations cannot be read
	// reason and message say what keeps it from running, if anything does.
	reason  mountjobs.Reason
	message string
}

func derive(s *Snapshot) *facts {
	f := &facts{
		Snapshot: s, classes: map[string]storedClass{}, claims: map[types.NamespacedName]*corev1.PersistentVolumeClaim{},
		volumes: map[string]volumes.Volume{}, attempts: map[string]position{}, events: map[eventKey][]corev1.Event{},
		tunnels: map[string]*v1alpha1.NodeTunnels{}, shown: map[string]*v1alpha1.FileSystem{},
	}
	for _, object := range s.NodeTunnels {
		f.tunnels[object.Name] = object
	}
	for _, object := range s.FileSystemObjects {
		f.shown[object.Name] = object
	}
	for _, event := range s.Events {
		about := event.InvolvedObject
		key := eventKey{about.Kind, about.Namespace, about.Name}
		f.events[key] = append(f.events[key], event)
	}
	for _, events := range f.events {
		slices.SortStableFunc(events, func(a, b corev1.Event) int { return LastSeen(b).Compare(LastSeen(a)) })
	}
	if s.Table != nil {
		f.table, f.invalid, f.tableErr = ports.DecodeLenient([]byte(s.Table.Data[wellknown.TargetsKey]))
	}
	for _, object := range s.Classes {
		if object.Provisioner == s.Provisioner {
			class, err := volumes.ParseClass(object)
			f.classes[object.Name] = storedClass{object, class, err}
		}
	}
	for _, object := range s.Volumes {
		f.volumes[object.Name] = volumes.Read(object, s.Provisioner)
	}
	for _, claim := range s.Claims {
		f.claims[nameOf(claim)] = claim
	}
	f.deriveJobs()
	for i, j := range f.jobs { // the newest first
		for n, operation := range slices.Backward(j.outcome.Operations) {
			if _, ok := f.attempts[operation.Volume]; !ok {
				f.attempts[operation.Volume] = position{i, n}
			}
		}
	}
	return f
}

func (f *facts) deriveJobs() {
	for _, job := range f.Jobs {
		if _, err := mountjobs.Identify(job); err != nil {
			continue // not the manager's
		}
		j := jobFacts{job: job}
		j.outcome, j.err = mountjobs.Read(job, f.Pods, f.Now)
		j.status = j.outcome.Status
		if j.status.State == mountjobs.Running {
			j.reason, j.message = mountjobs.Diagnose(job, podOf(job, f.Pods), f.Events)
		}
		f.jobs = append(f.jobs, j)
	}
	slices.SortStableFunc(f.jobs, func(a, b jobFacts) int {
		return cmp.Or(cmp.Compare(b.status.Name.Number, a.status.Name.Number), strings.Compare(a.job.Name, b.job.Name))
	})
}

// podOf is the newest pod of a Job, nil if there is none.
func podOf(job *batchv1.Job, pods []*corev1.Pod) *corev1.Pod {
	var newest *corev1.Pod
	for _, pod := range pods {
		if metav1.IsControlledBy(pod, job) && (newest == nil || newest.CreationTimestamp.Before(&pod.CreationTimestamp)) {
			newest = pod
		}
	}
	return newest
}

// attempt is one operation of a mount Job.
type attempt struct {
	jobFacts
	operation operations.Operation
}

// attempt finds the newest operation for a volume.
func (f *facts) attempt(volume string) (attempt, bool) {
	at, ok := f.attempts[volume]
	if !ok {
		return attempt{}, false
	}
	j := f.jobs[at.job]
	return attempt{j, j.outcome.Operations[at.operation]}, true
}

func (f *facts) eventsOf(kind string, object metav1.Object) []corev1.Event {
	uid := object.GetUID()
	return slices.DeleteFunc(slices.Clone(f.events[eventKey{kind, object.GetNamespace(), object.GetName()}]), func(event corev1.Event) bool {
		about := event.InvolvedObject.UID
		return kind != "Node" && about != "" && uid != "" && about != uid
	})
}

// isOurs says whether the manager or an agent wrote an event.
func isOurs(event corev1.Event) bool {
	return cmp.Or(event.Source.Component, event.ReportingController) == eventComponent
}

// eventComponent is the source of the events of manager and agents.
const eventComponent = "efs-stunnel"

// LastSeen is when an event last happened, in the fields of both event APIs.
func LastSeen(event corev1.Event) time.Time {
	times := []time.Time{event.CreationTimestamp.Time, event.LastTimestamp.Time, event.EventTime.Time}
	if event.Series != nil {
		times = append(times, event.Series.LastObservedTime.Time)
	}
	return slices.MaxFunc(times, time.Time.Compare)
}

// isClaimOurs says whether a claim requests a volume of this provisioner, or has one.
func (f *facts) isClaimOurs(claim *corev1.PersistentVolumeClaim) bool {
	if _, ok := f.classes[volumes.ClassName(claim)]; ok {
		return true
	}
	return volumes.AskedProvisioner(claim) == f.Provisioner
}

func (f *facts) claim(key types.NamespacedName) *corev1.PersistentVolumeClaim { return f.claims[key] }

// rootClaim is a file system's, nil if there is none.
func (f *facts) rootClaim(id string) *corev1.PersistentVolumeClaim {
	return f.claim(types.NamespacedName{Namespace: f.Namespace, Name: volumes.RootName(id)})
}
