package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Causes about SharedVolumes. Those of their condition Ready have the condition's reason.
const (
	SharedVolumeMissing Cause = "SharedVolumeMissing"
	SharedVolumeWaits   Cause = "SharedVolumeWaits"
	SharedVolumeDeleted Cause = "SharedVolumeIsDeleted"
)

// sharedResource has no objects where the definition is not installed.
const sharedResource = v1alpha1.SharedVolumeResource + "." + v1alpha1.GroupName

// SharedVolume is one that is not ready.
type SharedVolume struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Target    string    `json:"target"` // the file system, and the access point or path
	Phase     string    `json:"phase"`
	Created   time.Time `json:"created"`
	Level     Level     `json:"level"`
	Cause     Cause     `json:"cause"`
	Message   string    `json:"message"`
}

func (g *gatherer) sharedVolumes(ctx context.Context) error {
	if g.options.Dynamic == nil {
		return nil
	}
	return g.everywhere(sharedResource, func(namespace string) error {
		var failed error
		err := list(ctx, g, Unread{Resource: sharedResource, Namespace: namespace}, "",
			g.options.Dynamic.Resource(v1alpha1.SharedVolumes()).Namespace(namespace).List, func(object runtime.Object) {
				if item, ok := object.(*unstructured.Unstructured); ok {
					shared, err := v1alpha1.FromUnstructured(item)
					failed = cmp.Or(failed, err)
					if err == nil {
						g.snapshot.SharedVolumes = append(g.snapshot.SharedVolumes, shared)
					}
				}
			})
		return cmp.Or(err, failed)
	})
}

// silentShared is how long the manager may say nothing about a SharedVolume.
const silentShared = 30 * time.Second

func (f *facts) checkSharedVolumes() []Result {
	var results []Result
	for _, shared := range f.SharedVolumes {
		results = append(results, f.checkSharedVolume(shared))
	}
	return results
}

// checkSharedVolume says what its status says, which the manager keeps.
func (f *facts) checkSharedVolume(shared *v1alpha1.SharedVolume) Result {
	result := f.sharedState(shared)
	result.Object = "sharedvolume " + shared.Namespace + "/" + shared.Name
	return result.ofFileSystem(shared.Spec.FileSystemID).ofClaim(shared.Namespace, wellknown.SharedClaimPrefix+shared.Name)
}

func (f *facts) sharedState(shared *v1alpha1.SharedVolume) Result {
	claim := types.NamespacedName{Namespace: shared.Namespace, Name: wellknown.SharedClaimPrefix + shared.Name}
	if result, ok := f.waitsForMount(claim); ok && shared.Status.Phase == v1alpha1.Ready {
		return result
	}
	status, see := shared.Status, fmt.Sprintf("kubectl -n %s describe sharedvolume %s", shared.Namespace, shared.Name)
	recent := f.Now.Sub(shared.CreationTimestamp.Time) < silentShared
	switch {
	case shared.DeletionTimestamp != nil || status.Phase == v1alpha1.Deleting:
		return note(SharedVolumeDeleted, "", cmp.Or(status.Message, "the manager deletes its claim, then its volume"))
	case status.Phase == v1alpha1.Ready:
		return fine("", "claim %s can be used", claim.Name)
	case status.Phase == v1alpha1.Failed:
		return problem(reasonOf(shared), "", status.Message, "do what the message says; "+see)
	case recent:
		return note(SharedVolumeWaits, "", cmp.Or(status.Message, "the manager has not reported anything yet"))
	case status.Phase == "":
		return problem(ManagerSilent, "", fmt.Sprintf("the manager has reported nothing for %s", age(f.Now, shared.CreationTimestamp.Time)), see)
	}
	return problem(reasonOf(shared), "", status.Message, "it is ready when what the message names is there; "+see)
}

func (f *facts) sharedVolume(name types.NamespacedName) *v1alpha1.SharedVolume {
	for _, shared := range f.SharedVolumes {
		if shared.Namespace == name.Namespace && shared.Name == name.Name {
			return shared
		}
	}
	return nil
}

// sharedVolumeOf is what a claim was created for, nil if that is no SharedVolume that could be read.
func (f *facts) sharedVolumeOf(claim *corev1.PersistentVolumeClaim) *v1alpha1.SharedVolume {
	namespace, name, _ := strings.Cut(claim.Annotations[wellknown.AnnotationSharedVolume], "/")
	if namespace != claim.Namespace {
		return nil
	}
	return f.sharedVolume(types.NamespacedName{Namespace: namespace, Name: name})
}

func reasonOf(shared *v1alpha1.SharedVolume) Cause {
	for _, condition := range shared.Status.Conditions {
		if condition.Type == v1alpha1.ConditionReady && condition.Reason != "" {
			return Cause(condition.Reason)
		}
	}
	return SharedVolumeWaits
}

// waitingShared are the SharedVolumes that are not ready.
func (f *facts) waitingShared() []SharedVolume {
	var all []SharedVolume
	for _, shared := range f.SharedVolumes {
		if r := f.checkSharedVolume(shared); r.Level != OK {
			all = append(all, SharedVolume{
				shared.Namespace, shared.Name, join(shared.Spec.FileSystemID, cmp.Or(shared.Spec.AccessPointID, shared.Spec.Path)),
				string(shared.Status.Phase), shared.CreationTimestamp.Time, r.Level, r.Cause, r.Message,
			})
		}
	}
	slices.SortFunc(all, func(a, b SharedVolume) int {
		return cmp.Or(strings.Compare(string(b.Level), string(a.Level)), // problem, then note
			strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return all
}

// writeShared prints nothing about those that are ready.
func (s Status) writeShared(w *writer, now time.Time) {
	if s.SharedVolumeCount == 0 {
		return
	}
	rows := [][]string{{"SHAREDVOLUME", "TARGET", "AGE", "STATE", "MESSAGE"}}
	for _, v := range s.SharedVolumes[:min(len(s.SharedVolumes), shownRows)] {
		rows = append(rows, []string{v.Namespace + "/" + v.Name, v.Target, age(now, v.Created), string(v.Cause), short(v.Message)})
	}
	w.line("\nSharedVolumes: %d of %d are ready", s.SharedVolumeCount-len(s.SharedVolumes), s.SharedVolumeCount)
	w.rows(rows)
	if hidden := len(s.SharedVolumes) - shownRows; hidden > 0 {
		w.line("… and %d more: -o json has all", hidden)
	}
}
