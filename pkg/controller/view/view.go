// Package view puts together, from the caches, what package lifecycle decides
// from, and indexes the operations that wait for a mount Job: the claims loop
// decides, and the jobs loop reads the index.
package view

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"gnuthought.com/efs-stunnel/pkg/controller/caches"
	"gnuthought.com/efs-stunnel/pkg/controller/lifecycle"
	"gnuthought.com/efs-stunnel/pkg/controller/targets"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// View is safe for use by many at once.
type View struct {
	lifecycle.Settings
	Caches *caches.Caches
	// Targets is discovery's latest snapshot.
	Targets func() targets.Snapshot
	// Now is the apiserver's time: everything here is compared with times in objects. It is time.Now
	// unless it is set before the loops run.
	Now func() time.Time

	// OnWanted is what the claims loop calls with a file system when a claim waits for it. It does
	// nothing unless it is set before the loops run.
	OnWanted func(fileSystemID string)

	seed      maphash.Seed
	outcomes  outcomes
	originals originals
	counts    *volumeCounts
	wanted    wanted
}

// New makes a view. It is to be called before the caches run.
func New(settings lifecycle.Settings, c *caches.Caches, snapshot func() targets.Snapshot) (*View, error) {
	v := &View{Settings: settings, Caches: c, Targets: snapshot, Now: time.Now, OnWanted: func(string) {}, seed: maphash.MakeSeed()}
	v.counts = newVolumeCounts(c.Volumes.GetStore(), v.directoryOf)
	if err := c.Volumes.AddIndexers(cache.Indexers{byOriginal: v.originalsPlaces, byChange: v.counts.note}); err != nil {
		return nil, fmt.Errorf("indexing volumes: %w", err)
	}
	_, err := c.Volumes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { v.counts.catchUp() },
		UpdateFunc: func(any, any) { v.counts.catchUp() },
		DeleteFunc: func(any) { v.counts.catchUp() },
	})
	if err != nil {
		return nil, fmt.Errorf("watching volumes: %w", err)
	}
	_, err = c.Jobs.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, _ any) { v.forgetOld(before) },
		DeleteFunc: v.forgetGone,
	})
	if err != nil {
		return nil, fmt.Errorf("watching Jobs: %w", err)
	}
	return v, nil
}

// State is what is known of the claim with a uid, whether it still exists or not.
func (v *View) State(uid types.UID) lifecycle.State {
	s := lifecycle.State{
		Settings: v.Settings,
		Now:      v.Now(),
		Targets:  v.Targets(),
		UID:      uid,
		Claim:    v.Caches.Claim(uid),
		Holders:  func(path string) []string { return v.holders(path, volumes.VolumeName(uid)) },
		InUse:    func(id, path string) bool { return v.isInUse(directory{id, path}, volumes.VolumeName(uid)) },
		Attempts: v.Attempts,
	}
	if s.Claim != nil {
		s.Class = v.Caches.Class(volumes.ClassName(s.Claim))
		s.NodeZone = v.zoneOf(volumes.SelectedNode(s.Claim))
	}
	for _, object := range v.Caches.VolumesOfClaim(uid) {
		s.Volumes = append(s.Volumes, v.volume(object))
	}
	return s
}

// volume is what is known of one volume. Who else has its directory matters to its cleanup only.
func (v *View) volume(object *corev1.PersistentVolume) lifecycle.Volume {
	volume := lifecycle.Volume{Object: object, Claim: v.ClaimOf(object)}
	if volumes.NeedsCleanup(object, volume.Claim, v.Provisioner) {
		others := v.othersOf(object)
		volume.Shared, volume.Kept, volume.Unadopted = others.all > 0, others.kept > 0, v.unadopted(object)
	}
	return volume
}

func (v *View) zoneOf(name string) string {
	if name == "" {
		return ""
	}
	node := v.Caches.Node(name)
	if node == nil {
		return ""
	}
	return cmp.Or(node.Labels[corev1.LabelTopologyZone], node.Labels[corev1.LabelFailureDomainBetaZone])
}

// ClaimOf is the claim with the namespace and name of a volume's claimRef, nil if there is none.
func (v *View) ClaimOf(object *corev1.PersistentVolume) *corev1.PersistentVolumeClaim {
	if object == nil || object.Spec.ClaimRef == nil {
		return nil
	}
	ref := object.Spec.ClaimRef
	return v.Caches.ClaimNamed(ref.Namespace, ref.Name)
}

// holders are the file systems on which a path is a volume's of this cluster, or was asked for
// by another claim and is being made.
func (v *View) holders(path, except string) []string {
	ids := v.counts.fileSystemsOf(path, except, maps.Keys(v.Targets().FileSystems))
	for _, job := range v.Caches.JobsAt(path) {
		name, ok := mountjobs.ParseName(job.Name)
		if !ok || slices.Contains(ids, name.FileSystemID) {
			continue
		}
		o, err := v.Outcome(job)
		if err != nil {
			continue
		}
		for range makers(o, path, except) {
			ids = append(ids, name.FileSystemID)
			break
		}
	}
	slices.Sort(ids)
	return ids
}

// makers are the operations of a Job that make a path a volume's, or just did.
func makers(o mountjobs.Outcome, path, except string) iter.Seq[operations.Operation] {
	return func(yield func(operations.Operation) bool) {
		for i, operation := range o.Operations {
			if operation.AddsOwner() && operation.Path == path && operation.Volume != except && o.Report.Results[i].State != operations.Failed && !yield(operation) {
				return
			}
		}
	}
}

// isInUse says that a volume other than the one of a name has a directory and is neither released nor
// being deleted, or that a Job has made or makes the directory that of a claim which is there.
func (v *View) isInUse(d directory, except string) bool {
	if v.counts.others(d, except).inUse > 0 {
		return true
	}
	return slices.ContainsFunc(v.Caches.JobsAt(d.path), func(job *batchv1.Job) bool {
		name, ok := mountjobs.ParseName(job.Name)
		if !ok || name.FileSystemID != d.fileSystemID {
			return false
		}
		o, err := v.Outcome(job)
		if err != nil {
			return false
		}
		for operation := range makers(o, d.path, except) {
			if v.Caches.Claim(types.UID(operation.ClaimUID)) != nil {
				return true
			}
		}
		return false
	})
}

// othersOf are the other volumes that have a volume's directory.
func (v *View) othersOf(object *corev1.PersistentVolume) counts {
	d, ok := v.directoryOf(object)
	if !ok {
		return counts{}
	}
	return v.counts.others(d, object.Name)
}

// directoryOf is the directory of a volume, if the volume is ours.
func (v *View) directoryOf(object *corev1.PersistentVolume) (directory, bool) {
	id, path, ok := caches.DirectoryOf(object)
	if !ok || volumes.Read(object, v.Provisioner).Kind == volumes.Foreign {
		return directory{}, false
	}
	return directory{id, path}, true
}

// Attempts are what mount Jobs did for a volume, newest first.
func (v *View) Attempts(volume string) []lifecycle.Attempt {
	var attempts []numbered
	for _, job := range v.Caches.JobsOfVolume(volume) {
		read := v.readingOf(job)
		if read.err != nil {
			continue // the jobs loop says so
		}
		if i, ok := read.positions[volume]; ok {
			o := read.outcome
			attempts = append(attempts, numbered{o.Name.Number, v.attempt(job, o, o.Operations[i], o.Report.Results[i])})
		}
	}
	slices.SortFunc(attempts, func(a, b numbered) int {
		return cmp.Or(b.Began.Compare(a.Began), cmp.Compare(b.number, a.number), strings.Compare(a.Job, b.Job))
	})
	sorted := make([]lifecycle.Attempt, len(attempts))
	for i, a := range attempts {
		sorted[i] = a.Attempt
	}
	return sorted
}

// AttemptsOf are all that a Job did, in the order of its operations.
func (v *View) AttemptsOf(job *batchv1.Job, o mountjobs.Outcome) []lifecycle.Attempt {
	attempts := make([]lifecycle.Attempt, len(o.Operations))
	for i, operation := range o.Operations {
		attempts[i] = v.attempt(job, o, operation, o.Report.Results[i])
	}
	return attempts
}

type numbered struct {
	number int
	lifecycle.Attempt
}

// Superseded says whether a newer Job than this one has an operation for a volume.
func (v *View) Superseded(job *batchv1.Job, volume string) bool {
	attempts := v.Attempts(volume)
	return len(attempts) > 0 && attempts[0].Job != job.Name
}
