// Package observe gathers the input of package decide from the
// caches: a claim, its volumes, and the outcomes of the mount Jobs that worked
// for it. It also indexes, by file system, the operations that the latest
// decisions wait for: the claims loop decides, and the jobs loop reads the index.
package observe

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Gatherer is safe for concurrent use.
type Gatherer struct {
	decide.Settings
	Caches *caches.Caches
	// Targets is discovery's latest snapshot.
	Targets func() targets.Snapshot

	// The following are to be set before the loops run. By default Now is time.Now, and the functions do nothing.

	// Now is the apiserver's time: everything here is compared with times in objects.
	Now func() time.Time
	// OnPending is called with a file system for each operation that begins to wait for it, or has changed.
	OnPending func(fileSystemID string)
	// OnUnread is called once with the report of an ended Job that cannot be read, for the log: no user gets its text.
	OnUnread func(job, report string)
	Reported func(job types.UID) map[int]mountjobs.Reported // what the worker of a running Job has reported, by batch
	Points   decide.Points                                  // the access points of volumes

	seed        maphash.Seed
	outcomes    outcomes
	directories *directories
	pending     pendingIndex
}

// New makes a gatherer. It is to be called before the caches run.
func New(settings decide.Settings, c *caches.Caches, snapshot func() targets.Snapshot) (*Gatherer, error) {
	g := &Gatherer{
		Settings: settings, Caches: c, Targets: snapshot, Now: time.Now, OnPending: func(string) {}, OnUnread: func(string, string) {},
		Reported: func(types.UID) map[int]mountjobs.Reported { return nil },
		seed:     maphash.MakeSeed(), outcomes: outcomes{jobs: map[types.UID]*observedJob{}},
		directories: newDirectories(c.Volumes.GetStore(), settings.Provisioner),
	}
	if err := errors.Join(
		c.Volumes.AddIndexers(cache.Indexers{byChange: g.directories.note}),
		objects.OnChange(g.directories.changedTo, c.Volumes),
		objects.OnChange(g.outcomes.forget, c.Jobs),
	); err != nil {
		return nil, fmt.Errorf("indexing volumes and Jobs: %w", err)
	}
	return g, nil
}

// State returns the observed state of the claim with a uid, also of one that no longer exists.
func (g *Gatherer) State(uid types.UID) decide.State {
	s := decide.State{
		Settings: g.Settings,
		Now:      g.Now(),
		Targets:  g.Targets(),
		UID:      uid,
		Claim:    g.Caches.Claim(uid),
		Holders:  func(path string) []string { return g.holders(path, volumes.VolumeName(uid)) },
		InUse:    func(id, path string) bool { return g.isInUse(directory{id, path}, volumes.VolumeName(uid)) },
		Attempts: g.Attempts,
		Points:   g.Points,
	}
	if s.Claim != nil {
		s.Class = g.Caches.Class(volumes.ClassName(s.Claim))
		s.Named, s.ClassNamed = g.source, g.Caches.Class
		s.NodeZone = g.zoneOf(volumes.SelectedNode(s.Claim))
	}
	for _, object := range g.Caches.VolumesOfClaim(uid) {
		s.Volumes = append(s.Volumes, g.volume(object))
	}
	return s
}

// source returns the claim that another one names as its data source, and its volume, from the caches.
func (g *Gatherer) source(namespace, name string) volumes.Source {
	s := volumes.Source{Claim: g.Caches.ClaimNamed(namespace, name)}
	if s.Claim != nil && s.Claim.Spec.VolumeName != "" {
		s.Volume = g.Caches.Volume(s.Claim.Spec.VolumeName)
	}
	return s
}

// volume returns the observed state of one volume. Other owners of its directory are counted only where it needs a
// cleanup.
func (g *Gatherer) volume(object *corev1.PersistentVolume) decide.Volume {
	v := decide.Volume{Volume: volumes.Read(object, g.Provisioner), Claim: g.claimOf(object)}
	if v.NeedsCleanup(v.Claim) { // so it is an NFS volume of ours
		d := directory{v.FileSystemID, v.Path}
		others := g.directories.others(d, v.Name)
		v.Shared, v.Kept, v.Unadopted = others.all > 0, others.kept > 0, g.directories.unadopted(d)
		v.PointShared = v.Shared && v.AccessPointID != "" && g.sharesPoint(object)
	}
	return v
}

// sharesPoint reports whether another volume has the access point of a volume. All volumes are read for it, so it is
// to be called for those only whose directory is shared.
func (g *Gatherer) sharesPoint(volume *corev1.PersistentVolume) bool {
	return slices.ContainsFunc(caches.All[*corev1.PersistentVolume](g.Caches.Volumes), func(other *corev1.PersistentVolume) bool {
		return other.Name != volume.Name && other.Annotations[wellknown.AnnotationAccessPointID] == volume.Annotations[wellknown.AnnotationAccessPointID]
	})
}

// BegunPoints returns the access points that operations of mount Jobs are for.
func (g *Gatherer) BegunPoints() (points []volumes.Point) {
	for _, job := range caches.All[*batchv1.Job](g.Caches.Jobs) {
		ops, _ := mountjobs.Operations(job, nil) // the jobs loop reports the error
		for _, o := range ops {
			if point, ok := volumes.PointOf(o); ok {
				points = append(points, point)
			}
		}
	}
	return points
}

// PointSystems returns the file systems on which classes and volumes of this provisioner have access points.
func (g *Gatherer) PointSystems() []string {
	found := sets.New[string]()
	for _, object := range caches.All[*storagev1.StorageClass](g.Caches.Classes) {
		if class, err := volumes.ParseClass(object); err == nil && object.Provisioner == g.Provisioner && class.AccessPoints != nil {
			found.Insert(class.DefaultFileSystemID)
		}
	}
	for _, object := range caches.All[*corev1.PersistentVolume](g.Caches.Volumes) {
		if volume := volumes.Read(object, g.Provisioner); volume.AccessPointID != "" {
			found.Insert(volume.FileSystemID)
		}
	}
	return sets.List(found)
}

// IsKnown reports whether a volume exists, or a claim or a Job is there that it may be created for.
func (g *Gatherer) IsKnown(volume string) bool {
	uid, _ := volumes.ClaimOfName(volume)
	return g.Caches.Volume(volume) != nil || g.Caches.Claim(uid) != nil || len(g.Caches.JobsOfVolume(volume)) > 0
}

// IsReleased reports whether a volume exists and is to be cleaned up.
func (g *Gatherer) IsReleased(volume string) bool {
	object := g.Caches.Volume(volume)
	return object != nil && volumes.Read(object, g.Provisioner).NeedsCleanup(g.claimOf(object))
}

func (g *Gatherer) zoneOf(name string) string {
	if node := g.Caches.Node(name); node != nil {
		return cmp.Or(node.Labels[corev1.LabelTopologyZone], node.Labels[corev1.LabelFailureDomainBetaZone])
	}
	return ""
}

// claimOf returns the claim with the namespace and name of a volume's claimRef, nil if there is none.
func (g *Gatherer) claimOf(object *corev1.PersistentVolume) *corev1.PersistentVolumeClaim {
	if object.Spec.ClaimRef == nil {
		return nil
	}
	return g.Caches.ClaimNamed(object.Spec.ClaimRef.Namespace, object.Spec.ClaimRef.Name)
}

// holders returns the file systems on which a path is a volume's of this cluster, or was asked for
// by another claim and is being made.
func (g *Gatherer) holders(path, except string) []string {
	var ids []string
	for id := range g.Targets().FileSystems {
		if g.directories.others(directory{id, path}, except).all > 0 {
			ids = append(ids, id)
		}
	}
	for _, job := range g.Caches.JobsAt(path) {
		name, ok := mountjobs.ParseName(job.Name)
		if ok && !slices.Contains(ids, name.FileSystemID) && g.makes(job, path, except, func(operations.Operation) bool { return true }) {
			ids = append(ids, name.FileSystemID)
		}
	}
	slices.Sort(ids)
	return ids
}

// isInUse reports whether a volume other than the named one has a directory and is neither released nor being
// deleted, or whether a Job has made or makes the directory for a claim that exists.
func (g *Gatherer) isInUse(d directory, except string) bool {
	return g.directories.others(d, except).inUse > 0 || slices.ContainsFunc(g.Caches.JobsAt(d.path), func(job *batchv1.Job) bool {
		name, ok := mountjobs.ParseName(job.Name)
		return ok && name.FileSystemID == d.fileSystemID && g.makes(job, d.path, except, func(o operations.Operation) bool {
			return g.Caches.Claim(types.UID(o.ClaimUID)) != nil
		})
	})
}

// Sharer returns another claim of an operation's namespace that has its directory, "" if there is none.
func (g *Gatherer) Sharer(fileSystemID string, o operations.Operation) string {
	return g.directories.sharer(directory{fileSystemID, o.Path}, o.Volume, o.Namespace)
}

// makes reports whether a Job has an operation that matches and that adds, or has just added, an owner of a path
// for a volume other than the named one.
func (g *Gatherer) makes(job *batchv1.Job, path, except string, match func(operations.Operation) bool) bool {
	outcome, err := g.Outcome(job)
	if err != nil {
		return false
	}
	for i, o := range outcome.Operations {
		if o.AddsOwner() && o.Path == path && o.Volume != except && outcome.Report.Results[i].State != operations.Failed && match(o) {
			return true
		}
	}
	return false
}

// Attempts returns the operations of mount Jobs for a volume, newest first.
func (g *Gatherer) Attempts(volume string) []decide.Attempt {
	var attempts []decide.Attempt
	for _, job := range g.Caches.JobsOfVolume(volume) {
		read := g.read(job)
		if read.err != nil {
			continue // the jobs loop reports it
		}
		for _, i := range read.positions[volume] {
			attempts = append(attempts, g.Attempt(job, read.outcome, i))
		}
	}
	slices.SortFunc(attempts, func(a, b decide.Attempt) int {
		return cmp.Or(b.Began.Compare(a.Began), cmp.Compare(b.JobNumber, a.JobNumber), cmp.Compare(b.Batch, a.Batch), strings.Compare(a.Job, b.Job))
	})
	return attempts
}

// IsUsed reports whether the manager has acted on the result of an attempt whose Job has ended.
func (g *Gatherer) IsUsed(a decide.Attempt) bool {
	t := decide.Traces{Abandoned: g.Caches.Claim(types.UID(a.Operation.ClaimUID)) == nil}
	if object := g.Caches.Volume(a.Operation.Volume); object != nil {
		t.Volume, t.Claim = volumes.Read(object, g.Provisioner), g.claimOf(object)
	}
	newest := g.Attempts(a.Operation.Volume)
	t.Superseded = len(newest) > 0 && (newest[0].Job != a.Job || newest[0].Batch != a.Batch)
	return a.IsUsed(t)
}
