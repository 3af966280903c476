package discovery

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"

	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// rootWork is a root volume and a root claim that are not as they should be. The pair is what
// the caches show: whoever acts looks again, live.
type rootWork struct {
	pair volumes.RootPair
	left bool           // its target has left the table, so both go
	jobs []*batchv1.Job // that hold the claim and are not needed any longer
}

// roots finds what to heal and what to remove, and the strangers that are in the way.
func (v view) roots(s state) (works []rootWork, strangers []complaint) {
	pairs := s.rootPairs(v.options.Namespace)
	for _, id := range slices.Sorted(maps.Keys(v.table.Targets)) {
		if v.gone[id] || !v.passes(id) {
			continue
		}
		pair := pairs.of(id)
		pair.Port = v.table.Targets[id].Port
		strangers = append(strangers, strangersAt(pair)...)
		works = appendWork(works, rootWork{pair: pair, jobs: s.jobs[id]})
	}
	if s.pinned.table == nil {
		return works, strangers // what should be is not known well enough to remove anything
	}
	for _, id := range slices.Sorted(maps.Keys(pairs.found)) {
		if _, there := v.table.Targets[id]; !there {
			works = appendWork(works, rootWork{pair: pairs.of(id), left: true, jobs: s.jobs[id]})
		}
	}
	return works, strangers
}

func appendWork(works []rootWork, w rootWork) []rootWork {
	if len(w.steps()) == 0 && !w.mustFreeClaim() {
		return works
	}
	return append(works, w)
}

// rootPairs are all that look like ours, by file system.
type rootPairs struct {
	namespace string
	found     map[string]volumes.RootPair
}

func (r rootPairs) of(id string) volumes.RootPair {
	pair := r.found[id]
	pair.FileSystemID, pair.Namespace = id, r.namespace
	return pair
}

func (s state) rootPairs(namespace string) rootPairs {
	r := rootPairs{namespace: namespace, found: map[string]volumes.RootPair{}}
	for _, object := range s.volumes {
		if id, ok := rootID(object.Name); ok {
			pair := r.of(id)
			pair.Volume = object
			r.found[id] = pair
		}
	}
	for name, object := range s.claims {
		if id, ok := rootID(name); ok {
			pair := r.of(id)
			pair.Claim = object
			r.found[id] = pair
		}
	}
	return r
}

func rootID(name string) (id string, ok bool) {
	id, ok = strings.CutPrefix(name, wellknown.RootVolumePrefix)
	return id, ok && ports.CheckTargetID(id) == nil
}

// steps are what to do now, in order; none where a stranger is in the way.
func (w rootWork) steps() []volumes.Change {
	switch {
	case len(strangersAt(w.pair)) > 0:
		return nil
	case w.left:
		return leavingSteps(w.pair)
	}
	return w.pair.Changes()
}

// leavingSteps take away the claim and, once it is gone, the volume. For that, a class that no
// StorageClass has is asked for.
func leavingSteps(pair volumes.RootPair) []volumes.Change {
	const why = "its target has left the table"
	switch {
	case pair.Claim != nil && pair.Claim.DeletionTimestamp == nil && volumes.ClassName(pair.Claim) == wellknown.RootStorageClass:
		return []volumes.Change{{Action: volumes.DeleteClaim, Why: why}}
	case pair.Claim == nil && pair.Volume != nil && pair.Volume.DeletionTimestamp == nil && belongsHere(pair):
		return []volumes.Change{{Action: volumes.DeleteVolume, Why: why}}
	}
	return nil
}

// belongsHere is about another installation in the same cluster, which may still have the
// target that this one lost.
func belongsHere(pair volumes.RootPair) bool {
	ref := pair.Volume.Spec.ClaimRef
	isRoot := pair.Volume.Spec.StorageClassName == wellknown.RootStorageClass
	return isRoot && (ref == nil || ref.Namespace == pair.Namespace)
}

// mustFreeClaim says whether Jobs' pods keep a claim that is to go.
func (w rootWork) mustFreeClaim() bool {
	if w.pair.Claim == nil || len(w.jobs) == 0 {
		return false
	}
	return w.pair.Claim.DeletionTimestamp != nil || slices.ContainsFunc(w.steps(), func(step volumes.Change) bool {
		return step.Action == volumes.DeleteClaim
	})
}

// strangersAt are objects that have a root volume's or root claim's name, and nothing else that
// says it is one. They may hold somebody's data: healing would change or delete them.
func strangersAt(pair volumes.RootPair) []complaint {
	var complaints []complaint
	name := volumes.RootName(pair.FileSystemID)
	if pair.Volume != nil && !isRootVolume(pair) {
		complaints = append(complaints, strangerComplaint("PersistentVolume "+name, pair.FileSystemID))
	}
	if pair.Claim != nil && !isRootClaim(pair) {
		complaints = append(complaints, strangerComplaint(fmt.Sprintf("PersistentVolumeClaim %s/%s", pair.Namespace, name), pair.FileSystemID))
	}
	return complaints
}

// isRootVolume takes one sign for enough: an edited root volume still is one.
func isRootVolume(pair volumes.RootPair) bool {
	v := pair.Volume
	ref := v.Spec.ClaimRef
	return v.Spec.StorageClassName == wellknown.RootStorageClass ||
		v.Labels[wellknown.LabelRootKey] == pair.FileSystemID ||
		ref != nil && ref.Namespace == pair.Namespace && ref.Name == volumes.RootName(pair.FileSystemID)
}

func isRootClaim(pair volumes.RootPair) bool {
	c := pair.Claim
	return volumes.ClassName(c) == wellknown.RootStorageClass ||
		c.Labels[wellknown.LabelRootKey] == pair.FileSystemID ||
		c.Spec.VolumeName == volumes.RootName(pair.FileSystemID)
}

// usedUp says whether a Job is over and its outcome was used, and of which file system it is.
func usedUp(job *batchv1.Job) (id string, ok bool) {
	name, err := mountjobs.Identify(job)
	if err != nil || job.DeletionTimestamp != nil || slices.Contains(job.Finalizers, wellknown.FinalizerOutcome) {
		return "", false
	}
	return name.FileSystemID, mountjobs.IsOver(job)
}
